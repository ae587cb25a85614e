package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func claim(name string) store.Claim {
	return store.Claim{Key: "order:1", Owner: name, Lease: name, Weight: store.All, Limit: store.All, TTL: 10 * time.Second}
}

// TestPatterns checks every combination of the answers of five nodes, and of four, whose
// majority is three as well. Each node grants
// the claim, refuses it because another owner holds the key, or grants it with a lost
// reply. hazards 52 and 54
func TestPatterns(t *testing.T) {
	t.Parallel()
	for pattern := range 243 + 81 {
		var answers []int
		nodes := 5
		if pattern >= 243 {
			nodes = 4
		}
		for p, i := pattern, 0; i < nodes; i, p = i+1, p/3 {
			answers = append(answers, p%3)
		}
		t.Run(fmt.Sprint("answers ", answers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { checkPattern(t, answers) })
		})
	}
}

func checkPattern(t *testing.T, answers []int) {
	var inner []*memstore.Store
	var nodes []store.Store
	count := [3]int{}
	for _, a := range answers {
		count[a]++
		s, faults := memstore.New(), new(storetest.Faults)
		inner = append(inner, s)
		nodes = append(nodes, storetest.Faulty(s, faults))
		switch a {
		case 1:
			if _, err := s.Acquire(t.Context(), claim("other")); err != nil {
				t.Fatal(err)
			}
		case 2:
			faults.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault {
				if op == storetest.OpAcquire {
					return storetest.Fault{Lose: storetest.LoseReply}
				}
				return storetest.Fault{}
			})
		}
	}
	s := newStore(t, nodes)
	c := claim("ours")
	start := time.Now()
	g, err := s.Acquire(t.Context(), c)
	took, least, most := time.Since(start), time.Duration(0), s.Limit()
	switch {
	case count[0] >= 3:
		most = 0
	case count[0]+count[1] >= 3:
		most = s.Limit() / 2 // after a split vote the nodes are asked again
	default:
		least = s.Limit() // the lost replies could still decide
	}
	if took < least || took > most {
		t.Errorf("answered after %v, want %v to %v", took, least, most)
	}
	switch yes, no, lost := count[0], count[1], count[2]; {
	case yes >= 3:
		if err != nil || g.Valid <= 0 || g.Valid >= c.TTL-100*time.Millisecond {
			t.Fatalf("got %+v and %v, want a grant with its drift taken off", g, err)
		}
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Errorf("extend: %v", x[0].Err)
		}
		if err := s.Release(t.Context(), c); err != nil {
			t.Errorf("release: %v", err)
		}
	case yes+no >= 3:
		if !errors.Is(err, store.ErrBusy) {
			t.Fatalf("got %v, want busy", err)
		}
	default:
		if err == nil || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v with %d lost replies, want an unknown outcome", err, lost)
		}
		if err := s.Release(t.Context(), c); err != nil && !errors.Is(err, store.ErrLost) {
			t.Errorf("release: %v", err)
		}
	}
	time.Sleep(5 * time.Second) // late grants are released long before the TTL
	for i, in := range inner {
		if x := in.Extend(t.Context(), []store.Claim{c}); !errors.Is(x[0].Err, store.ErrLost) {
			t.Errorf("node %d still has the claim: %v", i, x[0].Err)
		}
	}
	if claims, tasks := s.Unsettled(); claims+tasks > 0 {
		t.Errorf("%d claims and %d cleanup tasks are left", claims, tasks)
	}
}

// TestExtendPatterns checks every combination of the answers of five nodes to an
// extension. Each node confirms the extension, answers that the hold is lost, or sends no
// reply.
func TestExtendPatterns(t *testing.T) {
	t.Parallel()
	for pattern := range 243 {
		var answers []int
		count := [3]int{}
		for p, i := pattern, 0; i < 5; i, p = i+1, p/3 {
			answers = append(answers, p%3)
			count[p%3]++
		}
		late(t, fmt.Sprint("answers ", answers), 5, func(s *scene) {
			st := newStore(s, s.nodes)
			c := claim("ours")
			acquire(s.T, st, c)
			time.Sleep(time.Second) // all nodes have granted the claim
			for i, a := range answers {
				switch a {
				case 1:
					if err := s.inner[i].Release(s.Context(), c); err != nil {
						s.Fatal(err)
					}
				case 2:
					s.faults[i].Next(storetest.OpExtend, storetest.Fault{Lose: storetest.LoseReply})
				}
			}
			x := st.Extend(s.Context(), []store.Claim{c})[0]
			switch {
			case count[0] >= 3:
				if x.Err != nil || x.Valid <= 0 || x.Valid >= c.TTL-100*time.Millisecond {
					s.Errorf("got %+v, want an extension with its drift taken off", x)
				}
			case count[1] >= 3:
				if !errors.Is(x.Err, store.ErrLost) {
					s.Errorf("got %+v, want %v", x, store.ErrLost)
				}
			case x.Err == nil || errors.Is(x.Err, store.ErrLost) || errors.Is(x.Err, store.ErrUnavailable):
				s.Errorf("got %+v, want an unknown outcome", x)
			}
		})
	}
	// An extension sends no acquire to a node to which the first acquire is still in
	// flight.
	late(t, "acquire in flight", 3, func(s *scene) {
		st := newStore(s, s.nodes, redlock.WithFencing())
		var acquires [3]atomic.Int64 // the number sent to each node
		sent := func() (all [3]int64) {
			for i := range acquires {
				all[i] = acquires[i].Load()
			}
			return all
		}
		for i, f := range s.faults {
			f.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault {
				if op != storetest.OpAcquire {
					return storetest.Fault{}
				}
				if acquires[i].Add(1); i == 2 {
					return storetest.Fault{Delay: sluggish}
				}
				return storetest.Fault{}
			})
		}
		c := claim("ours")
		acquire(s.T, st, c)
		synctest.Wait() // all acquires are sent
		before := sent()
		if x := st.Extend(s.Context(), []store.Claim{c})[0]; x.Err != nil {
			s.Errorf("got %+v", x)
		}
		time.Sleep(2 * sluggish)
		if after := sent(); after != before {
			s.Errorf("an extension sent acquires: got %v, want %v as before", after, before)
		}
		if at := s.has(c); len(at) != 3 {
			s.Errorf("the claim is at nodes %v, want all", at)
		}
	})
	late(t, "confirmed too late", 3, func(s *scene) {
		st := newStore(s, s.nodes, redlock.WithNodeTimeout(time.Second))
		c := claim("ours")
		c.TTL = 200 * time.Millisecond
		acquire(s.T, st, c)
		for _, f := range s.faults {
			f.Next(storetest.OpExtend, storetest.Fault{ReplyDelay: c.TTL})
		}
		if x := st.Extend(s.Context(), []store.Claim{c})[0]; x.Err == nil {
			s.Errorf("got %+v after %v", x, c.TTL)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	m := memstores(5)
	var none *memstore.Store
	for name, s := range map[string]struct {
		nodes []store.Store
		opts  []redlock.Option
	}{
		"no node":            {nil, nil},
		"two nodes":          {m[:2], nil},
		"a nil node":         {[]store.Store{m[0], m[1], nil}, nil},
		"a nil store":        {[]store.Store{m[0], m[1], none}, nil},
		"a node twice":       {[]store.Store{m[0], m[1], m[0]}, nil}, // hazard 53
		"a nil option":       {m, []redlock.Option{nil}},
		"no node timeout":    {m, []redlock.Option{redlock.WithNodeTimeout(0)}},
		"a drift of one":     {m, []redlock.Option{redlock.WithDrift(1)}},
		"a negative drift":   {m, []redlock.Option{redlock.WithDrift(-0.1)}},
		"negative age":       {m, []redlock.Option{redlock.WithQuarantine(-1)}},
		"a huge node budget": {m, []redlock.Option{redlock.WithNodeTimeout(time.Hour)}},
	} {
		if _, err := redlock.New(s.nodes, s.opts...); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, store.ErrInvalid)
		}
	}
}

// TestTokens_Grow checks that tokens grow from grant to grant while up to two nodes are
// down. The clocks of the nodes differ. hazard 34
func TestTokens_Grow(t *testing.T) {
	t.Parallel()
	grants := tally.AllTrials(1000)
	synctest.Test(t, func(t *testing.T) {
		var nodes []store.Store
		down := make([]atomic.Bool, 5)
		for i := range 5 {
			faults := new(storetest.Faults)
			faults.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
				if down[i].Load() {
					return storetest.Fault{Err: store.ErrUnavailable}
				}
				return storetest.Fault{}
			})
			nodes = append(nodes, storetest.Faulty(&ahead{Store: memstore.New(), by: uint64(i) * 700_001}, faults))
		}
		s := newStore(t, nodes, redlock.WithFencing())
		var last uint64
		for i := range grants {
			for n := range down {
				down[n].Store(n == (i*7)%5 || n == (i*i+3)%5)
			}
			c := claim(fmt.Sprint(i))
			g, err := s.Acquire(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if g.Token < last+store.TokenStep {
				t.Fatalf("grant %d: token %d after %d", i, g.Token, last)
			}
			last = g.Token
			again, err := s.Acquire(t.Context(), c)
			if err != nil || again.Token != g.Token {
				t.Fatalf("grant %d: the same claim again: %+v and %v, want token %d", i, again, err, g.Token)
			}
			if err := s.Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			for n := range down {
				down[n].Store(false)
			}
			time.Sleep(time.Second) // the cleanup is done
		}
	})
}

// ahead is a store whose clock is ahead of the other nodes' clocks.
type ahead struct {
	store.Store
	by uint64
}

func (a *ahead) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken == 0 {
		probe, err := a.Store.Acquire(ctx, c)
		if err != nil {
			return probe, err
		}
		if now := uint64(time.Now().UnixMicro()); probe.Token <= now {
			c.MinToken = now + a.by
		}
	}
	return a.Store.Acquire(ctx, c)
}

// TestSplitVotes makes five clients acquire one key at once, 40 times each. Every
// acquire succeeds. hazard 54
func TestSplitVotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := memstores(5)
		var inside, total int
		done := make(chan int)
		for client := range 5 {
			locker, err := core.New(newStore(t, distant(t, nodes)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locker.Close(t.Context()) })
			go func() {
				defer func() { done <- client }()
				for range 40 {
					lease, err := locker.Acquire(t.Context(), "order:1", core.Wait(time.Minute))
					if err != nil {
						t.Errorf("client %d: %v", client, err)
						return
					}
					if inside++; inside != 1 {
						t.Errorf("%d are inside", inside)
					}
					time.Sleep(time.Millisecond)
					inside--
					total++
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("client %d: release: %v", client, err)
					}
				}
			}()
		}
		var order []int
		for range 5 {
			order = append(order, <-done)
		}
		time.Sleep(4 * time.Second) // the cleanup is done
		for i, n := range nodes {
			if _, err := n.Acquire(t.Context(), claim("stranger")); err != nil {
				t.Errorf("something is left at node %d: %v", i, err)
			}
		}
		if total != 200 || len(slices.Compact(slices.Sorted(slices.Values(order)))) != 5 {
			t.Errorf("%d grants to %v, want 40 for each", total, order)
		}
	})
}
