package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// TestReleaseBehindAnAcquire checks the order of a release and an acquire of the same
// claim. If the acquire is in flight to a node, the release is sent there after the
// acquire has returned. One release is then enough. After a short wait, the release is
// sent in any case. hazard 54
func TestReleaseBehindAnAcquire(t *testing.T) {
	t.Parallel()

	// A node that is slightly slower than the majority gets the release once.
	late(t, "node a little slower", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: 2 * time.Millisecond})
		c, start := claim("ours"), time.Now()
		acquire(s.T, store, c)
		if err := store.Release(s.Context(), c); err != nil || time.Since(start) > 0 {
			s.Errorf("release: %v after %v, want none at once", err, time.Since(start))
		}
		time.Sleep(5 * time.Second)
		for i, f := range s.faults {
			if n := f.Calls(storetest.OpRelease); n != 1 {
				s.Errorf("node %d: got %d releases, want one", i, n)
			}
		}
		if at := s.has(c); len(at) != 0 {
			s.Errorf("the claim is still at nodes %v", at)
		}
	})

	// A node that is much slower does not delay the release, and does not keep the
	// claim.
	late(t, "node much slower", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{Delay: 30 * time.Millisecond})
		c, start := claim("ours"), time.Now()
		acquire(s.T, store, c)
		if err := store.Release(s.Context(), c); err != nil || time.Since(start) > 0 {
			s.Errorf("release: %v after %v, want none at once", err, time.Since(start))
		}
		time.Sleep(10 * time.Millisecond)
		if n := s.faults[2].Calls(storetest.OpRelease); n == 0 {
			s.Error("got no release at node 2 for the claim in flight")
		}
		time.Sleep(30 * time.Millisecond)
		if at := s.has(c); len(at) != 0 {
			s.Errorf("the claim arrived at nodes %v after its release, and was granted", at)
		}
	})

	// A node that has not answered the acquire gets the release again.
	late(t, "unanswered acquire", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{Lose: storetest.LoseReply, Err: errors.New("cut"), ReplyDelay: time.Millisecond})
		c := claim("ours")
		acquire(s.T, st, c)
		if err := st.Release(s.Context(), c); err != nil {
			s.Errorf("release: %v", err)
		}
		time.Sleep(5 * time.Second)
		if x := s.inner[2].Extend(s.Context(), []store.Claim{c}); !errors.Is(x[0].Err, store.ErrLost) {
			s.Errorf("node 2 still has it: %v", x[0].Err)
		}
		if _, err := s.inner[2].Acquire(s.Context(), c); !errors.Is(err, store.ErrLost) {
			s.Errorf("node 2 would still grant the late acquire: %v, want %v", err, store.ErrLost)
		}
	})

	// The release does not wait for an acquire that waits for a release.
	late(t, "acquire behind a release", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		s.faults[2].Next(storetest.OpAcquire, storetest.Fault{ReplyDelay: 2 * time.Millisecond})
		c := claim("ours")
		acquire(s.T, st, c)
		if err := st.Release(s.Context(), c); err != nil { // at node 2 it waits for the acquire
			s.Fatal(err)
		}
		// The claim is refused. At node 2 it waits for the release.
		if _, err := st.Acquire(s.Context(), c); err == nil {
			s.Log("granted again")
		}
		start := time.Now()
		if err := st.Release(s.Context(), c); err != nil && !errors.Is(err, store.ErrLost) {
			s.Errorf("release: %v", err)
		}
		if took := time.Since(start); took > 5*time.Millisecond {
			s.Errorf("the second release took %v", took)
		}
		time.Sleep(5 * time.Second)
		if claims, tasks := st.Unsettled(); claims+tasks > 0 {
			s.Errorf("%d claims and %d cleanup tasks are left", claims, tasks)
		}
		if at := s.has(c); len(at) != 0 {
			s.Errorf("the claim is still at nodes %v", at)
		}
	})
}

// TestRelease_RefusedByAllNodes checks a release that two or all three nodes refuse.
// The outcome is unknown, because the Store repeats the release in the background. If
// Release returned ErrUnavailable, a caller could repeat the release, and would take
// the answer ErrLost for a loss. hazard 11
func TestRelease_RefusedByAllNodes(t *testing.T) {
	t.Parallel()
	for _, refusing := range []int{2, 3} {
		late(t, fmt.Sprint(refusing, " of 3"), 3, func(s *scene) {
			st := newStore(s, s.nodes)
			for i := range 30 { // the verdict can precede the last refusal
				c := claim(fmt.Sprint("c", i))
				acquire(s.T, st, c)
				synctest.Wait()
				for _, f := range s.faults[:refusing] {
					f.Next(storetest.OpRelease, storetest.Fault{Err: store.ErrUnavailable, ReplyDelay: time.Millisecond})
				}
				if err := st.Release(s.Context(), c); err == nil || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrLost) {
					s.Errorf("got %v, want an unknown outcome", err)
				}
				time.Sleep(time.Second)
				if at := s.has(c); len(at) != 0 {
					s.Errorf("the claim is still at nodes %v", at)
				}
				if err := st.Release(s.Context(), c); !errors.Is(err, store.ErrLost) {
					s.Errorf("second release: got %v, want %v", err, store.ErrLost)
				}
			}
		})
	}
}
