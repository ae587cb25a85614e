package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// meeting is a node whose first releases wait for each other.
type meeting struct {
	*memstore.Store
	size int           // the number of releases that wait for each other
	met  chan struct{} // closed when they are all in flight

	mu                    sync.Mutex
	calls, inFlight, most int
}

func newMeeting(size int) *meeting {
	return &meeting{Store: memstore.New(), size: size, met: make(chan struct{})}
}

func (m *meeting) Release(ctx context.Context, c store.Claim) error {
	m.mu.Lock()
	m.calls++
	if m.calls == m.size {
		close(m.met)
	}
	m.inFlight++
	m.most = max(m.most, m.inFlight)
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.inFlight--
	}()
	select {
	case <-m.met:
		return m.Store.Release(ctx, c)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *meeting) counts() (calls, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls, m.most
}

type failing struct {
	*redlock.Store
	releases atomic.Int32
}

func (f *failing) Release(ctx context.Context, c store.Claim) error {
	err := f.Store.Release(ctx, c)
	if err != nil {
		f.releases.Add(1)
	}
	return err
}

// TestRelease_ManyKeys checks that the keys of one lease are released concurrently. Each
// node gets one release for each key, and at most nodeWidth of them at once.
func TestRelease_ManyKeys(t *testing.T) {
	t.Parallel()
	const nodeWidth = 256
	for _, keys := range []int{61, 301} {
		t.Run(fmt.Sprint(keys, " keys"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { releaseMany(t, keys, min(keys, nodeWidth)) })
		})
	}
}

// releaseMany releases a lease with this number of keys, in virtual time. The maximum
// number of releases that each node gets at once must be width.
func releaseMany(t *testing.T, keys, width int) {
	var all []*meeting
	var nodes []store.Store
	for range 3 {
		m := newMeeting(width)
		all, nodes = append(all, m), append(nodes, m)
	}
	s := newStore(t, nodes, redlock.WithNodeTimeout(slow))
	failed := &failing{Store: s}
	l, err := core.New(failed)
	if err != nil {
		t.Fatal(err)
	}
	var also []string
	for i := 1; i < keys; i++ {
		also = append(also, fmt.Sprint("order:", i))
	}
	lease, err := l.Acquire(t.Context(), "order", core.Also(also...), core.TTL(5*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	settled(t, s)
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
	if n := failed.releases.Load(); n != 0 {
		t.Errorf("got %d releases that failed, want none", n)
	}
	settled(t, s)
	for i, m := range all {
		if calls, most := m.counts(); calls != keys || most != width {
			t.Errorf("node %d: got %d releases, %d of them at once, want %d and %d", i, calls, most, keys, width)
		}
	}
	if lease, err = l.TryAcquire(t.Context(), "order", core.Also(also...)); err != nil {
		t.Fatalf("got %v, want all keys", err)
	}
	if err := errors.Join(lease.Release(t.Context()), l.Close(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestRelease_CrowdedNodes checks that further calls fail while many calls to the nodes
// are without an answer.
func TestRelease_CrowdedNodes(t *testing.T) {
	t.Parallel()
	const nodeWidth, releases = 256, 300
	var all []*meeting
	var nodes []store.Store
	for range 3 {
		m := newMeeting(1 << 20) // more releases than are sent
		all, nodes = append(all, m), append(nodes, m)
	}
	s := newStore(t, nodes, redlock.WithNodeTimeout(time.Second))
	var running sync.WaitGroup
	for i := range releases {
		running.Go(func() { _ = s.Release(t.Context(), claim(fmt.Sprint("c", i))) })
	}
	testserver.Eventually(t, patience, "the nodes have no room", func() bool {
		return !slices.ContainsFunc(all, func(m *meeting) bool {
			calls, _ := m.counts()
			return calls < nodeWidth
		})
	})
	testserver.Eventually(t, patience, "a further release is refused", func() bool {
		err := s.Release(t.Context(), claim("late"))
		if err == nil {
			t.Fatal("got no error")
		}
		return strings.Contains(err.Error(), "too many calls")
	})
	// Now the nodes are silent, so a further call to any of them fails at once. The
	// cleanup still sends the release, so the claim may be released later.
	if err := s.Release(t.Context(), claim("later")); errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrLost) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	for i, m := range all {
		if _, most := m.counts(); most != nodeWidth {
			t.Errorf("node %d: got %d releases at once, want %d", i, most, nodeWidth)
		}
		close(m.met)
	}
	running.Wait()
}
