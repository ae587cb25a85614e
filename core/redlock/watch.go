package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Watch implements store.Watcher. It opens a watch at every node, and returns when a
// majority of the watches is open. It waits for them until ctx is done or Limit has
// passed. The channel is closed when fewer watches than a majority are left.
//
// The channel receives a value when a majority of the nodes has sent a wake-up, and
// otherwise shortly after the first wake-up. A release takes a moment to reach all
// nodes, and until then an acquire finds too few nodes free. Watch fails with
// store.ErrUnsupported if too few nodes can send wake-ups.
func (s *Store) Watch(parent context.Context, c store.Claim) (<-chan struct{}, error) {
	if parent.Err() != nil {
		return nil, fmt.Errorf("redlock: watch: %w: %w", store.ErrUnavailable, context.Cause(parent))
	}
	ctx, cancel := context.WithCancel(parent)
	w := &watch{
		store: s, claim: c, cancel: cancel, awake: make([]bool, len(s.nodes)),
		ready: make(chan struct{}), out: make(chan struct{}, 1),
	}
	w.unhook = context.AfterFunc(s.ctx, cancel)
	able := make(map[int]store.Watcher, len(s.nodes))
	for i, n := range s.nodes {
		if node, ok := n.store.(store.Watcher); ok {
			able[i] = node
		}
	}
	w.pending = len(able)
	w.decide() // at once, if too few nodes can wake
	for i, node := range able {
		s.run(func() { w.follow(ctx, i, node) })
	}
	timer := time.NewTimer(s.Limit())
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
		return nil, fmt.Errorf("redlock: watch: too few nodes can wake: %w", store.ErrUnsupported)
	case w.err == nil:
		w.err = errTimeout
	}
	if cause := context.Cause(parent); cause != nil {
		w.err = cause
	}
	return nil, fmt.Errorf("redlock: watch: %w: %w", store.ErrUnavailable, w.err)
}

// watch is the state of one Watch, with a watch at each node.
type watch struct {
	store  *Store
	claim  store.Claim
	cancel context.CancelFunc
	unhook func() bool   // makes Close of the Store no longer cancel the watch
	ready  chan struct{} // closed when a majority is live, or cannot become live any more
	out    chan struct{} // the caller's channel

	mu          sync.Mutex
	pending     int // the number of nodes whose watch is not open yet
	live        int
	failed      int
	unsupported int
	err         error
	decided     bool        // ready is closed
	over        bool        // out is closed
	awake       []bool      // by node: the node has sent a wake-up
	grace       *time.Timer // runs after the first wake-up; nil otherwise
}

// follow opens the watch at one node and forwards its wake-ups. The watch of a node that
// answers late counts as live from the time of the answer.
func (w *watch) follow(ctx context.Context, i int, node store.Watcher) {
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
	w.decide()
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

func (w *watch) decide() {
	q := w.store.quorum
	if !w.decided && (w.live >= q || w.live+w.pending < q) {
		w.decided = true
		close(w.ready)
	}
}

// broke records that the watch at one node is closed. It closes the whole watch when
// the other nodes cannot form a majority.
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

// wakeGrace is the maximum wait for the wake-ups of the other nodes.
const wakeGrace = 3 * time.Millisecond

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
		w.grace = time.AfterFunc(wakeGrace, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.pass(ctx)
		})
	}
}

// pass wakes the caller, unless the channel out is closed or ctx is done.
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
