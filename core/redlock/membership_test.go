package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
)

// TestMembership_SecondHolder takes a lock at nodes 0 and 1 of three. Then node 0 loses
// its data, and the descriptions of the servers hide this in several ways. Another
// process must not get the lock.
func TestMembership_SecondHolder(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, theirs *redlock.Store, servers []*mortal){
		// The cluster does not look new, because two servers report their age.
		"two servers replaced": func(t *testing.T, theirs *redlock.Store, servers []*mortal) {
			_ = theirs.Check(t.Context())
			servers[0].restart(0)
			servers[1].restart(time.Hour)
			servers[2].restart(time.Hour)
		},
		"promoted replica": func(t *testing.T, theirs *redlock.Store, servers []*mortal) {
			_ = theirs.Check(t.Context())
			servers[0].describe(func(i *store.NodeInfo) { i.Replica = true })
			_ = theirs.Check(t.Context())
			servers[0].describe(func(i *store.NodeInfo) { i.Replica = false })
		},
		"clock set forward": func(t *testing.T, theirs *redlock.Store, servers []*mortal) {
			servers[0].restart(0)
			_ = theirs.Check(t.Context())
			servers[0].describe(func(i *store.NodeInfo) { i.Age = time.Hour })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				servers, nodes := mortals()
				ours, theirs := newStore(t, nodes), newStore(t, nodes)
				servers[2].dead.Store(true)
				acquire(t, ours, claim("ours"))
				synctest.Wait()
				servers[2].dead.Store(false)
				servers[0].Store = memstore.New()
				lose(t, theirs, servers)
				for range 20 {
					if _, err := theirs.Acquire(t.Context(), claim("theirs")); err == nil {
						t.Fatal("got a grant of a held key, want a refusal")
					}
					time.Sleep(200 * time.Millisecond)
				}
			})
		})
	}
}

// TestMembership_ClockSetBack sets the clock of servers back further than their age. A
// process that knows the servers still counts their votes.
func TestMembership_ClockSetBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		s := newStore(t, nodes)
		acquire(t, s, claim("ours"))
		for _, n := range servers[:2] {
			n.describe(func(i *store.NodeInfo) { i.Age = 0 })
		}
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check: got %v, want nil", err)
		}
		acquire(t, s, claim("ours"))
	})
}

// TestMembership_DeadReplica checks that a node that was a replica, and is now down, is
// like any node that is down.
func TestMembership_DeadReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		servers[0].describe(func(i *store.NodeInfo) { i.Replica = true })
		s := newStore(t, nodes)
		if _, err := s.Acquire(t.Context(), claim("ours")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a replica: got %v, want %v", err, store.ErrInvalid)
		}
		servers[0].dead.Store(true)
		time.Sleep(time.Second)
		_, _ = s.Acquire(t.Context(), claim("ours")) // looks at the servers again
		synctest.Wait()
		acquire(t, s, claim("ours"))
	})
}

// remembering is a node that describes its server from memory, unless it is asked anew.
type remembering struct {
	*mortal
	last *store.NodeInfo
}

func (n *remembering) Node(ctx context.Context) (store.NodeInfo, error) {
	if n.last != nil && !fresh.Wanted(ctx) {
		return *n.last, nil
	}
	info, err := n.mortal.Node(ctx)
	if err == nil {
		n.last = &info
	}
	return info, err
}

// TestMembership_RemediedFault checks that a fault of the servers is noticed as remedied
// although the nodes answer from memory, and get no claim.
func TestMembership_RemediedFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		servers[0].describe(func(i *store.NodeInfo) { i.ID = "life 1" })
		nodes[0] = &remembering{mortal: servers[0]}
		s := newStore(t, nodes)
		if _, err := s.Acquire(t.Context(), claim("ours")); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("one server twice: got %v, want %v", err, store.ErrInvalid)
		}
		servers[0].describe(func(i *store.NodeInfo) { i.ID = "life 0" })
		time.Sleep(time.Second)
		_, _ = s.Acquire(t.Context(), claim("ours")) // looks at the servers again
		synctest.Wait()
		acquire(t, s, claim("ours"))
	})
}

// TestMembership_LateDescription delivers the description of a replica after the server
// was promoted and described again.
func TestMembership_LateDescription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		n := &slowlyDescribed{}
		n.Store, n.info = servers[1].Store, servers[1].info
		nodes[1] = n
		s := newStore(t, nodes)
		held, begun := make(chan struct{}), make(chan struct{})
		n.describe(func(i *store.NodeInfo) { i.Replica = true })
		n.begun.Store(&begun)
		n.held.Store(&held)
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("check without an answer: got %v, want %v", err, store.ErrUnavailable)
		}
		n.describe(func(i *store.NodeInfo) { i.Replica = false })
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check: got %v, want nil", err)
		}
		close(held)
		synctest.Wait()
		acquire(t, s, claim("ours"))
	})
}
