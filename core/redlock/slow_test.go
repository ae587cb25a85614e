package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// nodeTime is the default node time-out, and sluggish the delay of a slower node.
const (
	nodeTime = 50 * time.Millisecond
	sluggish = 6 * nodeTime
)

// never is the delay of a dead node.
const never = time.Duration(-1)

// pace makes each node answer after a delay. A dead node never gets a request.
func (s *scene) pace(delays ...time.Duration) {
	for i, d := range delays {
		fault := storetest.Fault{Delay: d / 2, ReplyDelay: d - d/2}
		if d == never {
			fault = storetest.Fault{Lose: storetest.LoseRequest}
		}
		s.faults[i].Hook(func(storetest.Op, []store.Claim) storetest.Fault { return fault })
	}
}

// took fails the test unless call takes exactly want.
func (s *scene) took(what string, want time.Duration, call func()) {
	s.Helper()
	start := time.Now()
	if call(); time.Since(start) != want {
		s.Errorf("%s took %v, want %v", what, time.Since(start), want)
	}
}

// TestSlowNodes_Majority checks that a call returns when a majority has answered,
// however slow the nodes are. A dead node does not delay the call. hazard 52
func TestSlowNodes_Majority(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		delays []time.Duration
		want   time.Duration // the duration of each round
		token  time.Duration // the wait for the token of a slow node
	}{
		{"all of three slow", []time.Duration{sluggish, sluggish, sluggish}, sluggish, 0},
		{"one dead of three", []time.Duration{0, never, 0}, 0, 0},
		{"first dead of three", []time.Duration{never, 0, 0}, 0, 0},
		{"one dead of five", []time.Duration{0, 0, never, 0, 0}, 0, 0},
		{"two dead of five", []time.Duration{never, 0, 0, never, 0}, 0, 0},
		{"one slow of three", []time.Duration{0, 0, sluggish}, 0, nodeTime / 5},
		{"two slow of three", []time.Duration{0, sluggish, sluggish}, sluggish, 0},
		{"two slow at different rates", []time.Duration{0, 2 * sluggish, sluggish}, sluggish, 0},
		{"slow and dead of three", []time.Duration{0, sluggish, never}, sluggish, 0},
		{"slow and two dead of five", []time.Duration{never, 0, sluggish, never, 0}, sluggish, 0},
	} {
		for _, fencing := range []bool{false, true} {
			late(t, fmt.Sprintf("%s fencing %v", c.name, fencing), len(c.delays), func(s *scene) {
				var opts []redlock.Option
				granted := c.want
				if fencing {
					opts, granted = append(opts, redlock.WithFencing()), 2*c.want+c.token
				}
				st := newStore(s, s.nodes, opts...)
				s.pace(c.delays...)
				first := claim("first")
				_, _ = st.Acquire(s.Context(), first) // afterwards the dead nodes are known
				_ = st.Release(s.Context(), first)
				time.Sleep(10 * time.Second)
				ours := claim("ours")
				s.took("acquire", granted, func() {
					if g, err := st.Acquire(s.Context(), ours); err != nil || g.Token > 0 != fencing {
						s.Fatalf("acquire: got %+v and %v", g, err)
					}
				})
				s.took("extend", c.want, func() {
					if x := st.Extend(s.Context(), []store.Claim{ours})[0]; x.Err != nil || x.Valid >= ours.TTL {
						s.Errorf("extend: got %+v", x)
					}
				})
				s.took("release", c.want, func() {
					if err := st.Release(s.Context(), ours); err != nil {
						s.Errorf("release: got %v", err)
					}
				})
				time.Sleep(20 * time.Second)
				if at := s.has(ours); len(at) > 0 {
					s.Errorf("got the claim at nodes %v, want none", at)
				}
			})
		}
	}
	late(t, "release without a tombstone", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		c := claim("ours")
		acquire(s.T, store, c)
		synctest.Wait()
		s.pace(sluggish, sluggish, never)
		brief := c
		brief.TTL = 0
		s.took("release", sluggish, func() {
			if err := store.Release(s.Context(), brief); err != nil {
				s.Errorf("release: got %v", err)
			}
		})
	})
	late(t, "watch of two", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.pace(never, sluggish, sluggish)
		c := claim("ours")
		c.Wait = true
		s.took("watch", sluggish, func() {
			if _, err := store.Watch(s.Context(), c); err != nil {
				s.Errorf("watch: got %v", err)
			}
		})
	})
}

// TestSlowNodes_End checks that a call without a majority ends when the caller's time
// limit, the validity or Limit has passed. hazard 52
func TestSlowNodes_End(t *testing.T) {
	t.Parallel()
	isUnknown := func(err error) bool {
		return err != nil && !errors.Is(err, store.ErrBusy) && !errors.Is(err, store.ErrLost) && !errors.Is(err, store.ErrUnavailable)
	}
	for _, c := range []struct {
		name   string
		ttl    time.Duration
		budget time.Duration // the caller's time limit; 0 if there is none
		want   time.Duration
	}{
		{"limit of the store", 10 * time.Second, 0, 2 * time.Second},
		{"budget of the call", 10 * time.Second, 700 * time.Millisecond, 700 * time.Millisecond},
		{"budget shorter than node time-out", 10 * time.Second, nodeTime / 2, nodeTime / 2},
		{"validity of a short TTL", 200 * time.Millisecond, 0, 196 * time.Millisecond},
		{"validity beyond the budget", 200 * time.Millisecond, 150 * time.Millisecond, 150 * time.Millisecond},
	} {
		late(t, c.name, 3, func(s *scene) {
			st := newStore(s, s.nodes)
			ours := claim("ours")
			ours.TTL = c.ttl
			acquire(s.T, st, ours)
			synctest.Wait()
			s.pace(0, never, never)
			ctx := s.Context()
			if c.budget > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.budget)
				defer cancel()
			}
			s.took("extend", c.want, func() {
				if x := st.Extend(ctx, []store.Claim{ours})[0]; !isUnknown(x.Err) {
					s.Errorf("extend: got %v, want an unknown outcome", x.Err)
				}
			})
		})
		late(t, c.name+" late grants", 3, func(s *scene) {
			store := newStore(s, s.nodes)
			const at = 3 * time.Second / 2
			s.pace(at, at, never)
			want := c.want
			if want > at {
				s.pace(at, never, never)
			}
			ctx := s.Context()
			if c.budget > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.budget)
				defer cancel()
			}
			ours := claim("ours")
			ours.TTL = c.ttl
			s.took("acquire", want, func() {
				if _, err := store.Acquire(ctx, ours); !isUnknown(err) {
					s.Errorf("acquire: got %v, want an unknown outcome", err)
				}
			})
			// The late answers arrive. The nodes get a release long before the clean-up
			// would send one.
			time.Sleep(at + at/2 + 10*time.Millisecond - want)
			if n := s.faults[0].Calls(storetest.OpRelease); n != 1 {
				s.Errorf("node 0 got %d releases, want 1", n)
			}
			time.Sleep(at)
			if held := s.has(ours); len(held) > 0 {
				s.Errorf("got the claim at nodes %v, want none", held)
			}
		})
	}
	late(t, "nothing can be decided", 3, func(s *scene) {
		st := newStore(s, s.nodes)
		ours := claim("ours")
		acquire(s.T, st, ours)
		synctest.Wait()
		s.pace(0, 0, never)
		for _, f := range s.faults[:2] {
			f.Hook(func(storetest.Op, []store.Claim) storetest.Fault { return storetest.Fault{Err: store.ErrUnavailable} })
		}
		s.took("three calls", 0, func() {
			x := st.Extend(s.Context(), []store.Claim{ours})[0]
			err := st.Release(s.Context(), ours)
			_, other := st.Acquire(s.Context(), claim("other"))
			if x.Err == nil || err == nil || other == nil {
				s.Errorf("got %v, %v and %v, want errors", x.Err, err, other)
			}
		})
	})
	late(t, "short grants of slow nodes", 3, func(s *scene) {
		for i, m := range s.inner {
			s.nodes[i] = storetest.Faulty(brief{m, 200 * time.Millisecond}, s.faults[i])
		}
		store := newStore(s, s.nodes)
		s.pace(sluggish, sluggish, sluggish)
		if g, err := store.Acquire(s.Context(), claim("ours")); err == nil {
			s.Errorf("got %+v after %v", g, sluggish)
		}
	})
}

// brief is a node whose grants are valid for less than the TTL.
type brief struct {
	*memstore.Store
	valid time.Duration
}

func (b brief) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := b.Store.Acquire(ctx, c)
	g.Valid = b.valid
	return g, err
}

// TestSlowNodes_SplitVote checks that a majority that has answered decides without the
// other nodes, after the node time-out or when ctx is done. hazard 52
func TestSlowNodes_SplitVote(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		budget time.Duration
		third  time.Duration
		least  time.Duration
	}{
		{"dead third node", 0, never, nodeTime},
		{"slow third node", 0, time.Second, nodeTime},
		{"budget shorter than node time-out", nodeTime / 2, never, nodeTime / 2},
	} {
		late(t, c.name, 3, func(s *scene) {
			st := newStore(s, s.nodes)
			s.taken(1)
			s.pace(0, 0, c.third)
			ctx := s.Context()
			if c.budget > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.budget)
				defer cancel()
			}
			ours, start := claim("ours"), time.Now()
			if _, err := st.Acquire(ctx, ours); !errors.Is(err, store.ErrBusy) {
				s.Errorf("got %v, want %v", err, store.ErrBusy)
			}
			if took := time.Since(start); took < c.least || took > 6*nodeTime {
				s.Errorf("took %v, want %v to %v", took, c.least, 6*nodeTime)
			}
			time.Sleep(5 * time.Second)
			if at := s.has(ours); len(at) > 0 {
				s.Errorf("got the claim at nodes %v, want none", at)
			}
		})
	}
}

// TestSlowNodes_CanceledContext checks that Acquire, Extend, Release and Watch return
// at once when their context is canceled.
func TestSlowNodes_CanceledContext(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ctx context.Context, s *redlock.Store, c store.Claim) error{
		"acquire": func(ctx context.Context, s *redlock.Store, c store.Claim) error {
			_, err := s.Acquire(ctx, c)
			return err
		},
		"extend": func(ctx context.Context, s *redlock.Store, c store.Claim) error {
			return s.Extend(ctx, []store.Claim{c})[0].Err
		},
		"release": func(ctx context.Context, s *redlock.Store, c store.Claim) error { return s.Release(ctx, c) },
		"release without a tombstone": func(ctx context.Context, s *redlock.Store, c store.Claim) error {
			c.TTL = 0
			return s.Release(ctx, c)
		},
		"watch": func(ctx context.Context, s *redlock.Store, c store.Claim) error {
			_, err := s.Watch(ctx, c)
			return err
		},
	} {
		late(t, name, 3, func(s *scene) {
			store := newStore(s, s.nodes)
			s.pace(sluggish, sluggish, never)
			reason := errors.New("the caller left")
			ctx, cancel := context.WithCancelCause(s.Context())
			time.AfterFunc(sluggish/2, func() { cancel(reason) })
			s.took(name, sluggish/2, func() {
				if err := call(ctx, store, claim("ours")); !errors.Is(err, reason) {
					s.Errorf("got %v, want %v", err, reason)
				}
			})
		})
	}
}

// TestSlowNodes_ReleaseUnderWay checks that the next attempt is not sent to a slow node
// while a release is in flight to that node. hazard 54
func TestSlowNodes_ReleaseUnderWay(t *testing.T) {
	t.Parallel()
	late(t, "next attempt", 3, func(s *scene) {
		store := newStore(s, s.nodes)
		s.taken(1, 2)
		s.faults[0].Next(storetest.OpRelease, storetest.Fault{Delay: time.Second})
		c := claim("ours")
		s.busy(store, c) // node 0 has granted the claim, and gets the release after a second
		s.free(1)
		asked := s.faults[0].Calls(storetest.OpAcquire)
		s.busy(store, c)
		if n := s.faults[0].Calls(storetest.OpAcquire); n != asked {
			s.Errorf("got %d requests at node 0 before its release, want %d", n, asked)
		}
		s.free(2)
		acquire(s.T, store, c) // granted by the other nodes
		time.Sleep(5 * time.Second)
		if at := s.has(c); len(at) != 3 {
			s.Errorf("got the claim at nodes %v, want all", at)
		}
	})
}

// TestSlowNodes_CleanUp checks that a node that does not answer does not delay the
// clean-up at the other nodes. hazard 54
func TestSlowNodes_CleanUp(t *testing.T) {
	t.Parallel()
	late(t, "many tasks of a dead node", 5, func(s *scene) {
		store := newStore(s, s.nodes)
		s.pace(0, 0, 0, 0, never)
		for i := range 200 {
			c := claim(fmt.Sprint("early", i))
			c.Key = fmt.Sprint("order:early", i)
			acquire(s.T, store, c)
			if err := store.Release(s.Context(), c); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		c := claim("ours")
		acquire(s.T, store, c)
		s.faults[1].Next(storetest.OpRelease, storetest.Fault{Lose: storetest.LoseRequest, Err: errors.New("cut")})
		start := time.Now()
		if err := store.Release(s.Context(), c); err != nil {
			s.Fatal(err)
		}
		for len(s.has(c)) > 0 && time.Since(start) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(start); took > time.Second {
			s.Errorf("node 1 had the claim for %v, want at most %v", took, time.Second)
		}
	})
}

// distantView is a node that answers inspections after a delay.
type distantView struct {
	*memstore.Store
	delay time.Duration
}

func (d distantView) wait(ctx context.Context) error {
	if d.delay == never {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d.delay):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d distantView) Look(ctx context.Context, key string) (store.State, error) {
	if err := d.wait(ctx); err != nil {
		return store.State{}, err
	}
	return d.Store.Look(ctx, key)
}

func (d distantView) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	if err := d.wait(ctx); err != nil {
		return err
	}
	return d.Store.Revoke(ctx, key, hold, keep)
}

func TestSlowNodes_Inspector(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		delays [3]time.Duration
		want   time.Duration
		answer bool
	}{
		{"all slow", [3]time.Duration{sluggish, sluggish, sluggish}, sluggish, true},
		{"slow and dead", [3]time.Duration{0, sluggish, never}, sluggish, true},
		{"one dead", [3]time.Duration{0, 0, never}, nodeTime, true},
		{"two dead", [3]time.Duration{0, never, never}, 2 * time.Second, false},
	} {
		late(t, c.name, 3, func(s *scene) {
			for i, m := range s.inner {
				s.nodes[i] = distantView{m, c.delays[i]}
			}
			st := newStore(s, s.nodes)
			ours := claim("ours")
			acquire(s.T, st, ours)
			synctest.Wait()
			s.took("look", c.want, func() {
				state, err := st.Look(s.Context(), ours.Key)
				if c.answer && (err != nil || len(state.Holds) != 1) || !c.answer && !errors.Is(err, store.ErrUnavailable) {
					s.Errorf("look: got %+v and %v", state, err)
				}
			})
			if !c.answer {
				return
			}
			s.took("revoke", 2*c.want, func() {
				if err := st.Revoke(s.Context(), ours.Key, store.HoldID(ours.Lease), 0); err != nil {
					s.Errorf("revoke: got %v", err)
				}
			})
		})
	}
}

// farServer is an aged node that describes its server after a delay.
type farServer struct {
	*aged
	delay time.Duration
}

func (n farServer) Node(ctx context.Context) (store.NodeInfo, error) {
	if err := (distantView{delay: n.delay}).wait(ctx); err != nil {
		return store.NodeInfo{}, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return n.aged.Node(ctx)
}

// TestSlowNodes_FirstLook checks that the first check waits for slow servers as long as
// no majority may vote. hazard 30
func TestSlowNodes_FirstLook(t *testing.T) {
	t.Parallel()
	const look = 250 * time.Millisecond
	for _, c := range []struct {
		name   string
		age    time.Duration
		delays [3]time.Duration
		look   time.Duration
		grant  bool
	}{
		{"new slow cluster", time.Second, [3]time.Duration{2 * look, 2 * look, 2 * look}, 2 * look, true},
		{"new cluster with one slow", time.Second, [3]time.Duration{0, 0, 2 * look}, 2 * look, true},
		{"new cluster with one dead", time.Second, [3]time.Duration{0, 0, never}, 2 * time.Second, false},
		{"old cluster with one dead", time.Hour, [3]time.Duration{0, 0, never}, look, true},
	} {
		late(t, c.name, 3, func(s *scene) {
			for i, m := range s.inner {
				info := store.NodeInfo{ID: fmt.Sprint("life ", i), Age: c.age}
				s.nodes[i] = farServer{&aged{Store: m, info: info}, c.delays[i]}
			}
			store := newStore(s, s.nodes)
			start := time.Now()
			_, err := store.Acquire(s.Context(), claim("ours"))
			if took := time.Since(start); took < c.look || c.grant != (err == nil) {
				s.Errorf("got %v after %v, want granted: %v after %v", err, took, c.grant, c.look)
			}
		})
	}
}

// TestSlowNodes_Turns makes Lockers of several processes compete for one key at nodes
// that are all slower than the node time-out. Each Locker gets the key. hazards 52 and
// 54
func TestSlowNodes_Turns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := memstores(3)
		var mu sync.Mutex
		inside, grants := 0, make([]int, 5)
		var all sync.WaitGroup
		for client := range grants {
			var own []store.Store
			for i, n := range nodes {
				random := rand.New(rand.NewPCG(uint64(client), uint64(i)))
				var one sync.Mutex
				own = append(own, storetest.Faulty(n, faultsOf(t, func() storetest.Fault {
					one.Lock()
					defer one.Unlock()
					d := func() time.Duration { return nodeTime/2 + time.Duration(random.Int64N(int64(nodeTime))) }
					return storetest.Fault{Delay: d(), ReplyDelay: d()}
				}, storetest.OpAcquire, storetest.OpExtend, storetest.OpRelease, storetest.OpWatch)))
			}
			locker, err := core.New(newStore(t, own))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locker.Close(t.Context()) })
			all.Go(func() {
				for range 10 {
					lease, err := locker.Acquire(t.Context(), "order:1", core.TTL(time.Minute), core.Wait(10*time.Minute))
					if err != nil {
						t.Errorf("client %d: %v", client, err)
						return
					}
					mu.Lock()
					if inside++; inside != 1 {
						t.Errorf("got %d inside, want 1", inside)
					}
					grants[client]++
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("client %d: release: %v", client, err)
					}
				}
			})
		}
		start := time.Now()
		all.Wait()
		t.Logf("50 turns took %v", time.Since(start))
		if slices.ContainsFunc(grants, func(n int) bool { return n != 10 }) {
			t.Errorf("got %v grants, want 10 for each", grants)
		}
		time.Sleep(20 * time.Second) // the clean-up is done
	})
}
