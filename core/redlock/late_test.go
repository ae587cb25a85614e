package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// scene contains nodes in memory, each with its own faults.
type scene struct {
	*testing.T
	inner  []*memstore.Store
	faults []*storetest.Faults
	nodes  []store.Store
}

// late runs fn on a scene with n nodes in virtual time.
func late(t *testing.T, name string, n int, fn func(s *scene)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &scene{T: t}
			for range n {
				m, f := memstore.New(), new(storetest.Faults)
				t.Cleanup(f.Wait)
				s.inner, s.faults, s.nodes = append(s.inner, m), append(s.faults, f), append(s.nodes, storetest.Faulty(m, f))
			}
			fn(s)
		})
	})
}

// has returns the nodes at which c is held.
func (s *scene) has(c store.Claim) (at []int) {
	s.Helper()
	for i, m := range s.inner {
		if x := m.Extend(s.Context(), []store.Claim{c}); x[0].Err == nil {
			at = append(at, i)
		}
	}
	return at
}

func (s *scene) taken(at ...int) {
	s.Helper()
	for _, i := range at {
		acquire(s.T, s.inner[i], claim("other"))
	}
}

func (s *scene) free(i int) {
	s.Helper()
	if err := s.inner[i].Release(s.Context(), claim("other")); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) busy(st store.Store, c store.Claim) {
	s.Helper()
	if _, err := st.Acquire(s.Context(), c); !errors.Is(err, store.ErrBusy) {
		s.Fatalf("got %v, want busy", err)
	}
}

// TestLateMessages checks that a late message of an earlier attempt does not undo a
// later attempt of the same lease, and is not a vote for it. Otherwise two claims could
// hold the key in most of these scenes. hazard 54
func TestLateMessages(t *testing.T) {
	t.Parallel()
	const far = 30 * time.Millisecond // still within the time-out of a node

	// When a release without a tombstone returns, none of its requests is still in
	// flight.
	late(t, "nothing in flight", 3, func(s *scene) {
		ours, theirs := newStore(s, s.nodes), newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpRelease, storetest.Fault{Delay: far})
		c := claim("ours")
		brief := c
		brief.TTL = 0
		if err := ours.Release(s.Context(), brief); !errors.Is(err, store.ErrLost) {
			s.Fatalf("release: got %v, want %v", err, store.ErrLost)
		}
		acquire(s.T, theirs, c)
		time.Sleep(time.Second)
		if at := s.has(c); len(at) != 3 {
			s.Errorf("the claim is at nodes %v, want all", at)
		}
	})

	// Any other release waits only for a majority.
	late(t, "release by the majority", 3, func(s *scene) {
		ours := newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpRelease, storetest.Fault{Delay: far})
		c := claim("ours")
		acquire(s.T, ours, c)
		synctest.Wait() // all nodes have the claim
		start := time.Now()
		if err := ours.Release(s.Context(), c); err != nil || time.Since(start) > 0 {
			s.Errorf("got %v after %v, want no error at once", err, time.Since(start))
		}
		time.Sleep(time.Second)
		if at := s.has(c); len(at) != 0 {
			s.Errorf("the claim is still at nodes %v", at)
		}
	})

	// A refusal waits only for a majority.
	late(t, "refusal by the majority", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Hook(func(storetest.Op, []store.Claim) storetest.Fault { return storetest.Fault{Delay: far} })
		start := time.Now()
		s.busy(st, claim("ours"))
		if took := time.Since(start); took >= far {
			s.Errorf("got the answer after %v, as long as the node that is late", took)
		}
	})

	// A late grant to a failed attempt is released, and is not a vote for the next
	// attempt.
	late(t, "late grant of another attempt", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: far})
		c := claim("ours")
		s.busy(st, c)
		time.Sleep(2 * far) // the grant has arrived and was released
		if at := s.has(c); len(at) != 0 {
			s.Fatalf("the claim is at nodes %v after it failed", at)
		}
		s.faults[0].Hook(func(storetest.Op, []store.Claim) storetest.Fault { return storetest.Fault{Err: store.ErrUnavailable} })
		s.free(1)
		if _, err := st.Acquire(s.Context(), c); err == nil {
			s.Errorf("granted, with the claim at nodes %v", s.has(c))
		}
	})

	// A late grant to a failed attempt stays if the node has also granted the next
	// attempt.
	late(t, "late grant of another node", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: far})
		c := claim("ours")
		s.busy(store, c)
		s.free(1)
		acquire(s.T, store, c) // the first answer of node 0 is still in flight
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 2 {
			s.Errorf("the claim was granted and is at nodes %v, want 0 and 1", at)
		}
	})

	// In a split vote, a late grant counts and stays while the other nodes are asked
	// again.
	late(t, "late grant in a split vote", 5, func(s *scene) {
		store := newStore(s, s.nodes)
		s.taken(1, 2, 3)
		s.faults[4].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: 3 * time.Millisecond})
		time.AfterFunc(2*time.Millisecond, func() { s.free(1) })
		c := claim("ours")
		acquire(s.T, store, c)
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 3 {
			s.Errorf("the claim was granted and is at nodes %v, want 0, 1 and 4", at)
		}
	})

	// A node at which a release of the claim timed out is not asked for the claim.
	late(t, "node without its release", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Next(storetest.OpRelease, storetest.Fault{Delay: 2 * st.Limit()})
		c := claim("ours")
		s.busy(st, c) // node 0 has granted the claim, and gets the release later
		time.Sleep(st.Limit())
		s.free(1)
		asked := s.faults[0].Calls(storetest.OpAcquire)
		if _, err := st.Acquire(s.Context(), c); err == nil {
			s.Errorf("granted by nodes %v, of which one is about to release it", s.has(c))
		}
		if s.faults[0].Calls(storetest.OpAcquire) != asked {
			s.Error("node 0 was asked again")
		}
		s.free(2)
		acquire(s.T, st, c) // granted by the other nodes
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 2 {
			s.Errorf("the claim was granted and is at nodes %v, want 1 and 2", at)
		}
		// After the time in which the release can arrive, the node gets the claim too.
		for range 40 {
			if x := st.Extend(s.Context(), []store.Claim{c}); x[0].Err != nil {
				s.Fatal(x[0].Err)
			}
			time.Sleep(5 * time.Second)
		}
		if at := s.has(c); len(at) != 3 {
			s.Errorf("after an extension the claim is at nodes %v, want all", at)
		}
	})

	// A claim does not overtake its own release.
	late(t, "claim behind its release", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Next(storetest.OpRelease, storetest.Fault{Delay: far})
		c := claim("ours")
		// The caller does not wait for the release.
		ctx, cancel := context.WithTimeout(s.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := st.Acquire(ctx, c); !errors.Is(err, store.ErrBusy) {
			s.Fatalf("got %v, want busy", err)
		}
		s.free(1)
		acquire(s.T, st, c)
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 2 {
			s.Errorf("the claim was granted and is at nodes %v, want 0 and 1", at)
		}
	})

	// A late answer does not change the result of a release in flight.
	late(t, "late answer during a release", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.taken(0, 1)
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: far})
		c := claim("ours")
		s.busy(store, c)
		s.free(1)
		acquire(s.T, store, c) // by nodes 1 and 2, with node 2's first answer still in flight
		s.faults[2].Next(storetest.OpRelease, storetest.Fault{Delay: far + 10*time.Millisecond})
		if err := store.Release(s.Context(), c); err != nil {
			s.Errorf("release of a claim that two of three have: %v", err)
		}
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 0 {
			s.Errorf("the claim is still at nodes %v", at)
		}
	})

	// A grant that was released before its answer arrived is not a vote.
	late(t, "released before its answer", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		for _, i := range []int{1, 2} {
			s.faults[i].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: far})
		}
		c, done := claim("ours"), make(chan error)
		go func() {
			_, err := store.Acquire(s.Context(), c)
			done <- err
		}()
		time.Sleep(far / 2)
		if err := store.Release(s.Context(), c); err != nil {
			s.Fatal(err)
		}
		if err := <-done; err == nil {
			s.Errorf("granted, and held by nodes %v", s.has(c))
		}
	})

	// Even if each of two rounds has a late request, Acquire waits until acquires are
	// in flight to at most a minority of the nodes.
	late(t, "rounds with late requests", 3, func(s *scene) {
		ours, theirs := newStore(s, s.nodes, redlock.WithFencing()), newStore(s, s.nodes, redlock.WithFencing())
		c := claim("ours")
		acquire(s.T, theirs, c)
		synctest.Wait()
		// The first of two rounds is late at node 1, the second at node 2.
		s.faults[1].Next(storetest.OpAcquire, storetest.Fault{Delay: far})
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{}, storetest.Fault{Delay: far})
		raised := c
		raised.MinToken = 1<<51 - 1 // so that the acquire takes two rounds
		acquire(s.T, ours, raised)
		if err := theirs.Release(s.Context(), c); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * far)
		if at := s.has(c); len(at) > 1 {
			s.Errorf("the released claim is back at nodes %v", at)
		}
	})
}

// TestOneToken checks that two requests for one claim get the same token, although a
// node is late. hazard 34
func TestOneToken(t *testing.T) {
	t.Parallel()

	// A claim that is sent again gets the same token, although a late node has assigned
	// a higher token.
	late(t, "claim that comes again", 3, func(s *scene) {
		store := newStore(s, s.nodes, redlock.WithFencing())
		c := claim("ours")
		delay := storetest.Fault{Delay: 2 * 30 * time.Millisecond}
		s.faults[2].Next(storetest.OpAcquire, delay, delay)
		first := acquire(s.T, store, c)
		time.Sleep(time.Second)
		if own := acquire(s.T, s.inner[2], c); own.Token <= first.Token {
			s.Fatalf("node 2 has token %d, which is not higher than %d", own.Token, first.Token)
		}
		s.faults[1].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: 8 * time.Millisecond})
		if again := acquire(s.T, store, c); again.Token != first.Token {
			s.Errorf("got token %d again, want %d", again.Token, first.Token)
		}
	})

	// Two processes send one claim at the same time, and one of them is farther from
	// node 2. Both get the same token.
	late(t, "two processes at once", 3, func(s *scene) {
		s.nodes[2] = storetest.Faulty(&ahead{Store: s.inner[2], by: 700_001}, s.faults[2])
		far := new(storetest.Faults)
		s.Cleanup(far.Wait)
		for range 2 {
			far.Next(storetest.OpAcquire, storetest.Fault{Delay: time.Millisecond, ReplyDelay: 3 * time.Millisecond})
		}
		ours := newStore(s, []store.Store{s.nodes[0], s.nodes[1], storetest.Faulty(s.nodes[2], far)}, redlock.WithFencing())
		theirs := newStore(s, s.nodes, redlock.WithFencing())
		c, got := claim("ours"), make(chan store.Grant, 2)
		for _, store := range []store.Store{ours, theirs} {
			go func() {
				g, err := store.Acquire(s.Context(), c)
				if err != nil {
					s.Error(err)
				}
				got <- g
			}()
		}
		if a, b := <-got, <-got; a.Token != b.Token {
			s.Errorf("got tokens %d and %d for one claim", a.Token, b.Token)
		}
	})
}
