package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Watch implements core.Watcher: it watches at all nodes, is live when a majority
// of the watches is, and breaks when that is over. A wake-up is passed on when a
// majority of the nodes has sent one, or a moment after the first: a release takes
// a moment to reach all nodes, and who asks before that finds the key half free.
// It fails with ErrUnsupported if too few nodes can wake.
func (s *Store) Watch(parent context.Context, c core.Claim) (<-chan struct{}, error) {
	if parent.Err() != nil {
		return nil, fmt.Errorf("redlock: watch: %w: %w", core.ErrUnavailable, context.Cause(parent))
	}
	ctx, cancel := context.WithCancel(parent)
	w := &watch{
		store: s, claim: c, cancel: cancel, awake: make([]bool, len(s.nodes)),
		ready: make(chan struct{}), out: make(chan struct{}, 1),
	}
	w.unhook = context.AfterFunc(s.ctx, cancel)
	able := make(map[int]core.Watcher, len(s.nodes))
	for i, n := range s.nodes {
		if node, ok := n.store.(core.Watcher); ok {
			able[i] = node
		}
	}
	w.pending = len(able)
	for i, node := range able {
		s.run(func() { w.follow(ctx, i, node) })
	}
	timer := time.NewTimer(4 * s.timeout)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live >= s.quorum && ctx.Err() == nil {
		return w.out, nil
	}
	cancel()
	w.unhook()
	switch {
	case w.unsupported > len(s.nodes)-s.quorum || w.pending+w.live+w.failed+w.unsupported < s.quorum:
		return nil, fmt.Errorf("redlock: watch: too few nodes can wake: %w", core.ErrUnsupported)
	case w.err == nil:
		w.err = errTimeout
	}
	if cause := context.Cause(parent); cause != nil {
		w.err = cause
	}
	return nil, fmt.Errorf("redlock: watch: %w: %w", core.ErrUnavailable, w.err)
}

// watch is the watches at the nodes.
type watch struct {
	store  *Store
	claim  core.Claim
	cancel context.CancelFunc
	unhook func() bool   // of the Store's end
	ready  chan struct{} // closed when it is live, or cannot become so
	out    chan struct{}

	mu          sync.Mutex
	pending     int
	live        int
	failed      int
	unsupported int
	err         error
	told        bool // ready is closed
	over        bool // out is closed
	awake       []bool
	grace       *time.Timer // runs while some have sent a wake-up
}

// follow opens the watch at one node and passes on what it says. A node that is
// late joins when it is there.
func (w *watch) follow(ctx context.Context, i int, node core.Watcher) {
	woken, err := node.Watch(ctx, w.claim)
	w.mu.Lock()
	w.pending--
	switch k := kindOf(err); {
	case k == granted:
		w.live++
	case k == unsupported:
		w.unsupported++
	default:
		w.failed++
		w.err = err
	}
	w.tell()
	w.mu.Unlock()
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		select {
		case _, ok := <-woken:
			if !ok {
				w.broke()
				return
			}
			w.wake(ctx, i)
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *watch) tell() {
	q := w.store.quorum
	if !w.told && (w.live >= q || w.live+w.pending < q) {
		w.told = true
		close(w.ready)
	}
}

// broke ends the whole watch when too few are left.
func (w *watch) broke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.live--; w.live+w.pending < w.store.quorum {
		w.cancel()
		w.end()
	}
}

func (w *watch) end() {
	if w.grace != nil {
		w.grace.Stop()
	}
	if !w.over {
		w.over = true
		w.unhook()
		close(w.out)
	}
}

// splitGrace is how long to wait for the other nodes' wake-ups.
const splitGrace = 3 * time.Millisecond

func (w *watch) wake(ctx context.Context, i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awake[i] = true
	n := 0
	for _, a := range w.awake {
		if a {
			n++
		}
	}
	switch {
	case n >= w.store.quorum:
		w.pass(ctx)
	case w.grace == nil:
		w.grace = time.AfterFunc(splitGrace, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pass(ctx)
		})
	}
}

// pass wakes the caller.
func (w *watch) pass(ctx context.Context) {
	if w.grace != nil {
		w.grace.Stop()
		w.grace = nil
	}
	if w.over || ctx.Err() != nil {
		return
	}
	clear(w.awake)
	select {
	case w.out <- struct{}{}:
	default:
	}
}
