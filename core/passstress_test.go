package core_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// stay is a lease on which a caller currently relies.
type stay struct {
	lease *core.Lease
	dead  bool // the lease's hold was deleted
}

// watching is a store that records the last granted claim of order:1.
type watching struct {
	*memstore.Store
	mu   sync.Mutex
	last store.Claim
}

func (s *watching) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && c.Key == "order:1" {
		s.mu.Lock()
		s.last = c
		s.mu.Unlock()
	}
	return g, err
}

// underMutex reports whether the caller may hold the mutex of waiters, because a method
// of waiters is on its stack. A sleep under a mutex would stop virtual time.
func underMutex() bool {
	var pcs [12]uintptr
	n := runtime.Callers(3, pcs[:])
	f := runtime.CallersFrames(pcs[:n])
	for {
		fr, more := f.Next()
		if strings.Contains(fr.Function, ".(*waiters).") {
			return true
		}
		if !more {
			return false
		}
	}
}

// stress makes 16 goroutines of two Lockers acquire one key again and again for the time
// length. It checks the errors of releases. Unless holds are deleted, it also checks
// that there is one holder at a time and that tokens grow. The flags add pauses in
// reads of a clock, calls that fail, deleted holds, and joined holds. stress returns
// the number of leases, and the number of Acquire calls that the store got.
func stress(t *testing.T, seed uint64, length time.Duration, pauses, faulty, deletes, joins bool) (total, trips int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	var rmu sync.Mutex
	r := func(n int) int { rmu.Lock(); defer rmu.Unlock(); return rng.IntN(n) }
	within := func(d time.Duration) time.Duration {
		rmu.Lock()
		defer rmu.Unlock()
		return time.Duration(rng.Int64N(int64(d)))
	}
	mem := &watching{Store: memstore.New()}
	ttl := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[r(3)]
	var quiet atomic.Int32
	hook := func() time.Duration {
		if pauses && quiet.Load() == 0 && r(3000) == 0 && !underMutex() {
			time.Sleep(within(ttl * 3 / 2))
		}
		return 0
	}
	var lockers []*core.Locker
	var stores []*scripted
	for range 2 {
		s := newScripted(mem)
		l := newLocker(t, s)
		l.SetAsleep(hook)
		s.setAll(func(ctx context.Context, n int, do func() error) error {
			d := time.Duration(50+r(300)) * time.Microsecond
			if faulty && r(60) == 0 {
				switch r(6) {
				case 0:
					return loseRequest(ctx, n, do)
				case 1:
					return loseReply(ctx, n, do)
				case 2:
					return refuse(ctx, n, do)
				case 3:
					return hang(ctx, n, do)
				case 4:
					return hangAfter(ctx, n, do)
				default:
					return late(within(ttl))(ctx, n, do)
				}
			}
			return slow(d, d)(ctx, n, do)
		})
		lockers, stores = append(lockers, l), append(stores, s)
	}
	var mu sync.Mutex
	active := map[*stay]bool{}
	var top uint64
	valid := func(l *core.Lease) bool { return l.Deadline().After(time.Now()) }
	enter := func(a *stay) {
		quiet.Add(1)
		mu.Lock()
		defer mu.Unlock()
		defer quiet.Add(-1)
		if !deletes && valid(a.lease) {
			for b := range active {
				if b.lease.Token() != a.lease.Token() && valid(b.lease) && valid(a.lease) {
					t.Errorf("seed %d: two holders: %d and %d", seed, a.lease.Token(), b.lease.Token())
				}
			}
			if a.lease.Token() <= top {
				t.Errorf("seed %d: token %d after %d", seed, a.lease.Token(), top)
			}
			top = max(top, a.lease.Token())
		}
		active[a] = true
	}
	end := time.Now().Add(length)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for time.Now().Before(end) {
				l := lockers[i%2]
				if i > 13 && r(3) == 0 {
					time.Sleep(time.Duration(r(20)) * time.Millisecond)
				}
				ctx, cancel := context.WithCancel(t.Context())
				switch r(6) {
				case 0:
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(r(4000))*time.Microsecond)
				case 1:
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(r(100))*time.Millisecond)
				}
				o := []core.AcquireOption{core.TTL(ttl)}
				if r(20) == 0 {
					o = append(o, core.Fair())
				}
				if r(20) == 0 {
					o = append(o, core.Fenced())
				}
				ends := false
				switch r(60) {
				case 0:
					ends = true
					o = append(o, core.NoRenew())
				case 1:
					o = append(o, core.KeepFor(time.Millisecond))
				case 2:
					ends = true
					o = append(o, core.MaxHold(5*time.Millisecond))
				case 3:
					o = append(o, core.Also("a:2"))
				case 4:
					o = append(o, core.TTL(ttl*2))
				}
				lease, err := l.Acquire(ctx, "order:1", o...)
				if err != nil {
					cancel()
					if errors.Is(err, core.ErrClosed) {
						return
					}
					continue
				}
				a := &stay{lease: lease}
				enter(a)
				if r(4) > 0 {
					time.Sleep(time.Duration(r(400)) * time.Microsecond)
				} else if r(20) == 0 {
					time.Sleep(within(ttl))
				}
				if joins {
					switch r(25) {
					case 0:
						inner, err := lockers[r(2)].Acquire(lease.Context(), "order:1", core.TTL(ttl), core.Wait(0))
						if err == nil {
							if inner.Token() != lease.Token() && valid(inner) && valid(lease) {
								t.Errorf("seed %d: inner token %d, lease %d", seed, inner.Token(), lease.Token())
							}
							inner.Release(t.Context())
						}
					case 1:
						owner := lease.Owner()
						wg.Go(func() {
							j, err := lockers[r(2)].TryAcquire(core.ContextWithOwner(t.Context(), owner), "order:1", core.TTL(ttl))
							if err != nil {
								return
							}
							b := &stay{lease: j}
							quiet.Add(1)
							mu.Lock()
							if valid(j) {
								for c := range active {
									if c.lease.Token() != j.Token() && valid(c.lease) {
										t.Errorf("seed %d: joined %d beside %d", seed, j.Token(), c.lease.Token())
									}
								}
								top = max(top, j.Token())
							}
							active[b] = true
							mu.Unlock()
							quiet.Add(-1)
							time.Sleep(time.Duration(r(3000)) * time.Microsecond)
							mu.Lock()
							delete(active, b)
							mu.Unlock()
							j.Release(t.Context())
						})
					case 2:
						c, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
						go func() { lease.Extend(c, ttl*2); stop() }()
						runtime.Gosched()
					}
				}
				mu.Lock()
				delete(active, a)
				dead := a.dead
				total++
				mu.Unlock()
				start, trusted := time.Now(), lease.Deadline()
				err = lease.Release(t.Context())
				if took := time.Since(start); took > 6100*time.Millisecond {
					t.Errorf("seed %d: release took %v", seed, took)
				}
				switch {
				case dead && err == nil && (!pauses || time.Now().Before(trusted)):
					// A pause can outlast the hold.
					t.Errorf("seed %d: hold deleted, release says nil", seed)
				case !dead && !deletes && !faulty && !pauses && !joins && err != nil && !(ends && errors.Is(err, core.ErrLost)):
					t.Errorf("seed %d: release: %v", seed, err)
				}
				cancel()
			}
		})
	}
	if deletes {
		wg.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(within(30 * time.Millisecond))
				mu.Lock()
				var one *stay
				for a := range active {
					one = a
				}
				if one != nil {
					mem.mu.Lock()
					c := mem.last
					mem.mu.Unlock()
					quiet.Add(1)
					ok := valid(one.lease)
					quiet.Add(-1)
					if ok && mem.Store.Release(context.Background(), c) == nil {
						for a := range active {
							a.dead = true
						}
					}
				}
				mu.Unlock()
			}
		})
	}
	if joins && r(2) == 0 {
		wg.Go(func() {
			time.Sleep(time.Duration(r(2000)) * time.Millisecond)
			ctx, stop := context.WithTimeout(t.Context(), time.Duration(r(3000))*time.Microsecond)
			defer stop()
			lockers[0].Close(ctx)
		})
	}
	wg.Wait()
	for _, s := range stores {
		trips += s.count(opAcquire)
		s.setAll(nil)
	}
	time.Sleep(2 * time.Minute)
	if !isFree(mem.Store, "order:1") {
		t.Errorf("seed %d: not free", seed)
	}
	return total, trips
}

func TestPassingOnStress(t *testing.T) {
	t.Parallel()
	for name, m := range map[string][4]bool{
		"no fault": {}, "only joins": {false, false, false, true}, "only pauses": {true, false, false, true}, "only faults": {false, true, false, true},
		"pauses and faults": {true, true, false, true}, "only deletions": {false, false, true, false}, "deletions and pauses": {true, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			length := time.Duration(tally.AllTrials(10)) * 300 * time.Millisecond
			leases, calls, rounds := 0, 0, 0
			vacuous := func() bool {
				// A single pause or fault can take most of a round.
				return leases < 10*rounds || name == "no fault" && (leases < 80*rounds || 2*leases < 3*calls)
			}
			for ; rounds < tally.Trials(120) || rounds < 120 && vacuous(); rounds++ {
				seed := rand.Uint64()
				synctest.Test(t, func(t *testing.T) {
					total, trips := stress(t, seed, length, m[0], m[1], m[2], m[3])
					leases, calls = leases+total, calls+trips
				})
			}
			if vacuous() {
				t.Errorf("test setup: got %d leases by %d calls in %d rounds", leases, calls, rounds)
			}
		})
	}
}
