package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// TestClockJump ends the hold at one node, as if the clock of the node had jumped
// forward. If all clients reach all nodes, the other nodes outvote this node. The test
// also shows a limit. If two clients reach different majorities, one such clock is enough
// for two holders. The second holder has a higher token, so the resource can refuse the
// first holder. hazard 19
func TestClockJump(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for _, c := range []struct {
		name    string
		cut     bool // the holder reaches nodes 0, 1 and 2, the rival nodes 2, 3 and 4
		jumps   bool // node 2 ends its hold
		twoHave bool
	}{
		{"no cut and no jump", false, false, false},
		{"jump alone", false, true, false},
		{"cut alone", true, false, false},
		{"limit of jump and cut", true, true, true},
	} {
		late(t, c.name, 5, func(s *scene) {
			var held atomic.Pointer[store.Claim] // the holder's claim at node 2
			s.faults[2].Hook(func(op storetest.Op, claims []store.Claim) storetest.Fault {
				if op == storetest.OpExtend {
					held.CompareAndSwap(nil, &claims[0])
				}
				return storetest.Fault{}
			})
			open := func(away ...int) *core.Locker {
				own := append([]store.Store(nil), s.nodes...)
				for _, i := range away {
					faults := faultsOf(s, func() storetest.Fault { return storetest.Fault{Err: store.ErrUnavailable} },
						storetest.OpAcquire, storetest.OpExtend, storetest.OpRelease, storetest.OpWatch)
					own[i] = storetest.Faulty(s.inner[i], faults)
				}
				l, err := core.New(newStore(s, own, redlock.WithFencing()))
				if err != nil {
					s.Fatal(err)
				}
				s.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), ttl)
					defer cancel()
					_ = l.Close(ctx)
				})
				return l
			}
			var first, second []int
			if c.cut {
				first, second = []int{3, 4}, []int{0, 1}
			}
			holder, rival := open(first...), open(second...)
			old, err := holder.Acquire(s.Context(), "order:1", core.TTL(ttl))
			if err != nil {
				s.Fatal(err)
			}
			defer old.Release(s.Context())
			time.Sleep(3 * ttl) // the lease is extended several times
			if c.jumps {
				expired := *held.Load()
				expired.TTL = 0
				if err := s.inner[2].Release(s.Context(), expired); err != nil {
					s.Fatal(err)
				}
			}
			next, err := rival.TryAcquire(s.Context(), "order:1", core.TTL(ttl))
			if !c.twoHave {
				if err == nil || old.Context().Err() != nil {
					s.Errorf("got %v and %v, want one holder", err, context.Cause(old.Context()))
				}
				return
			}
			if err != nil || old.Context().Err() != nil {
				s.Fatalf("got %v and %v, want two holders; if this is prevented now, the documentation promises too little",
					err, context.Cause(old.Context()))
			}
			defer next.Release(s.Context())
			if next.Token() <= old.Token() {
				s.Errorf("got token %d after %d, so the resource cannot refuse the first holder", next.Token(), old.Token())
			}
			time.Sleep(ttl)
			if cause := context.Cause(old.Context()); !errors.Is(cause, store.ErrLost) {
				s.Errorf("got %v, want the first holder to have lost the key after its TTL", cause)
			}
			if next.Context().Err() != nil {
				s.Errorf("got %v, want the second holder to have the key", context.Cause(next.Context()))
			}
		})
	}
}
