package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	// Users have these names in dashboards and alerts, so they must not change.
	kinds := "acquired busy gave_up extended extend_failed lost released passed_on cleaned_up overrun ran replayed refused misused node_out node_back unlocked revoked"
	var got []string
	for k := core.Acquired; k.String() != "unknown"; k++ {
		got = append(got, k.String())
	}
	if strings.Join(got, " ") != kinds {
		t.Errorf("the kinds are %q, want %s", got, kinds)
	}
	got = nil
	for m := core.ModeExclusive; m.String() != "unknown"; m++ {
		got = append(got, m.String())
	}
	if strings.Join(got, " ") != "exclusive shared permits run" {
		t.Errorf("the modes are %q", got)
	}
	for _, s := range []fmt.Stringer{core.Kind(0), core.Kind(-1), core.Kind(99), core.Mode(0), core.Mode(99)} {
		if s.String() != "unknown" {
			t.Errorf("%#v is %q", s, s)
		}
	}
}

// scenes has a function for each kind of event, which causes one event of that kind.
// The function is nil if other packages test the kind.
var scenes = map[core.Kind]func(t *testing.T, l *core.Locker, store *scripted){
	core.Acquired: func(t *testing.T, l *core.Locker, _ *scripted) { acquire(t, t.Context(), l, "order:1") },
	core.Released: func(t *testing.T, l *core.Locker, _ *scripted) { release(t, acquire(t, t.Context(), l, "order:1")) },
	core.Busy: func(t *testing.T, l *core.Locker, store *scripted) {
		other := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		time.AfterFunc(time.Minute, func() { other.Release(context.Background()) })
		acquire(t, t.Context(), l, "order:1") // asks several times, and reports Busy once
	},
	core.GaveUp: func(t *testing.T, l *core.Locker, _ *scripted) {
		acquire(t, t.Context(), l, "order:1")
		_, err := l.Acquire(t.Context(), "order:1", core.Wait(time.Second))
		wantErr(t, err, core.ErrBusy)
	},
	core.Extended: func(t *testing.T, l *core.Locker, _ *scripted) {
		acquire(t, t.Context(), l, "order:1")
		time.Sleep(11 * time.Second)
	},
	core.ExtendFailed: func(t *testing.T, l *core.Locker, store *scripted) {
		acquire(t, t.Context(), l, "order:1")
		store.set(first(1, loseRequest), opExtend)
		time.Sleep(15 * time.Second)
	},
	core.Lost: func(t *testing.T, l *core.Locker, _ *scripted) {
		lease := acquire(t, t.Context(), l, "order:1", core.NoRenew())
		lossTime(t, lease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	},
	core.PassedOn: func(t *testing.T, l *core.Locker, _ *scripted) {
		lease := acquire(t, t.Context(), l, "order:1")
		go l.Acquire(t.Context(), "order:1")
		synctest.Wait()
		release(t, lease)
	},
	core.CleanedUp: func(t *testing.T, l *core.Locker, store *scripted) {
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(loseReply, opRelease)
		wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
		store.set(nil, opRelease)
	},
	core.Overrun: func(t *testing.T, l *core.Locker, _ *scripted) {
		acquire(t, t.Context(), l, "order:1", core.MaxHold(time.Second))
		time.Sleep(time.Minute)
	},
	core.Ran:      func(t *testing.T, l *core.Locker, _ *scripted) { calls(t, l, 1) },
	core.Replayed: func(t *testing.T, l *core.Locker, _ *scripted) { calls(t, l, 2) },
	core.Refused: func(t *testing.T, l *core.Locker, _ *scripted) {
		o := calls(t, l, 1)
		_, err := o.Do(t.Context(), once.Call{Name: "order", Key: "1", Fingerprint: []byte("another")}, nothing)
		wantErr(t, err, once.ErrMismatch)
	},
	core.RanUnlocked: func(t *testing.T, l *core.Locker, store *scripted) {
		store.set(refuse, opAcquire)
		_, err := l.TryAcquire(t.Context(), "order:1")
		if _, ok := adapter.FailOpen(t.Context(), l, "order", err); !ok {
			t.Errorf("may not run after %v", err)
		}
	},
	core.Misused: func(t *testing.T, l *core.Locker, _ *scripted) { // only adapters report it
		adapter.Observe(t.Context(), l, core.Event{Kind: core.Misused, Name: "order", Err: errBroken})
	},
	core.NodeOut:  nil, // only redlock reports it: TestRestartedNode_BackWhenItCounts
	core.NodeBack: nil,
	core.Revoked:  nil, // only inspect reports it: TestRevoke_Notified
}

// calls makes n equal calls of a new once.Once, and returns the Once.
func calls(t *testing.T, l *core.Locker, n int) *once.Once {
	t.Helper()
	o, err := once.New(l)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := o.Do(t.Context(), once.Call{Name: "order", Key: "1"}, nothing); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func nothing(context.Context) (once.Answer, error) { return once.Answer{}, nil }

func TestEvent_EachKindOnce(t *testing.T) {
	t.Parallel()
	for k := core.Acquired; k.String() != "unknown"; k++ {
		scene, known := scenes[k]
		if !known {
			t.Errorf("%s: no scene", k)
		}
		if scene == nil {
			continue
		}
		sim(t, k.String(), func(t *testing.T) {
			seen := &recorder{}
			live := observerFunc(func(ctx context.Context, e core.Event) {
				if e.Kind == k && ctx.Err() != nil {
					t.Errorf("got a context that is done, although those of the callers are not: %v", ctx.Err())
				}
			})
			l, store := setup(t, core.WithObserver(core.Observers(seen, live)))
			scene(t, l, store)
			time.Sleep(time.Second)
			synctest.Wait()
			events := seen.all(k)
			store.setAll(nil)
			closeNow(l)
			if len(events) != 1 {
				t.Fatalf("got it %d times: %s", len(events), seen.kinds())
			}
			if events[0].Name != "order" {
				t.Errorf("the name is %q", events[0].Name)
			}
		})
	}
}

// closeNow releases all leases of a Locker.
func closeNow(l *core.Locker) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	l.Close(ended)
}

func TestContended(t *testing.T) {
	t.Parallel()
	// The events of waiters have Contended, whether the waiters get a lease or not.
	sim(t, "waiter in the own queue", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(seen))
		holder := acquire(t, t.Context(), l, "order:1")
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if i == 9 {
					_, err := l.Acquire(t.Context(), "order:1", core.Wait(time.Millisecond))
					wantErr(t, err, core.ErrBusy)
					return
				}
				release(t, acquire(t, t.Context(), l, "order:1"))
			})
		}
		time.Sleep(time.Second)
		release(t, holder)
		wg.Wait()
		wantContended(t, seen.all(core.Acquired), 1, 9)
		wantContended(t, seen.all(core.Released), 1, 9)
		wantContended(t, seen.all(core.GaveUp), 0, 1)
	})
	// Contended is set for callers that wait for another process or are refused. It is
	// not set for a caller that finds the key free, or if the store does not answer.
	sim(t, "other process or no waiter", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		other := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		_, err := l.TryAcquire(t.Context(), "order:1")
		wantErr(t, err, core.ErrBusy)
		time.AfterFunc(time.Second, func() { other.Release(context.Background()) })
		release(t, acquire(t, t.Context(), l, "order:1"))
		wantContended(t, seen.all(core.GaveUp), 0, 1)
		wantContended(t, seen.all(core.Acquired), 0, 1)
		release(t, acquire(t, t.Context(), l, "order:1"))
		store.set(refuse, opAcquire)
		_, err = l.TryAcquire(t.Context(), "order:1")
		wantErr(t, err, core.ErrUnavailable)
		wantContended(t, seen.all(core.GaveUp), 1, 1)
		wantContended(t, seen.all(core.Acquired), 1, 1)
		wantContended(t, seen.all(core.Busy), 0, 2)
	})
}

func wantContended(t *testing.T, events []core.Event, not, are int) {
	t.Helper()
	n := 0
	for _, e := range events {
		if e.Contended {
			n++
		}
	}
	if n != are || len(events) != not+are {
		t.Errorf("%d of %d are contended, want %d of %d: %+v", n, len(events), are, not+are, events)
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	// An event has the mode of its lease. Reentered reports whether the lease
	// re-entered.
	sim(t, "mode and re-entry", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		for _, o := range [][]core.AcquireOption{nil, {core.Shared()}, {core.Permits(1, 2)}} {
			release(t, acquire(t, t.Context(), l, "order:1", o...))
		}
		if err := begin(t, l, "order:1", 1).Finish(t.Context(), finished("", 1)); err != nil {
			t.Fatal(err)
		}
		outer := acquire(t, t.Context(), l, "order:2")
		release(t, acquire(t, outer.Context(), l, "order:2"))
		elsewhere := core.ContextWithOwner(t.Context(), outer.Owner())
		release(t, acquire(t, elsewhere, newLocker(t, store, core.WithObserver(seen)), "order:2"))
		release(t, outer)
		release(t, acquire(t, elsewhere, l, "order:2")) // no hold is left to join
		for _, k := range []core.Kind{core.Acquired, core.Released} {
			var got []string
			for _, e := range seen.all(k) {
				got = append(got, fmt.Sprintf("%v:%v", e.Mode, e.Reentered))
			}
			want := "exclusive:false shared:false permits:false run:false exclusive:false exclusive:true exclusive:true exclusive:false"
			if k == core.Released {
				want = "exclusive:false shared:false permits:false run:false exclusive:true exclusive:true exclusive:false exclusive:false"
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: got %s\nwant %s", k, got, want)
			}
		}
	})
}

// TestOneEnd checks that as many leases are lost or released as were acquired, and at
// no time more. Some leases are lost, passed on or re-entered.
func TestOneEnd(t *testing.T) {
	t.Parallel()
	all := map[core.Kind]int{}
	joined := 0
	vacuous := func() bool {
		return all[core.Acquired] == 0 || all[core.Lost] == 0 || all[core.PassedOn] == 0 || joined == 0
	}
	// A small number of trials may have no loss.
	for n := 0; n < tally.Trials(40) || n < 40 && vacuous(); n++ {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			g := &gauges{t: t, held: map[string]int{}, kinds: map[core.Kind]int{}}
			l, store := setup(t, core.WithObserver(g))
			throng(t, l, store, seed)
			synctest.Wait()
			left, held := 0, 0
			for _, n := range g.held {
				left += n
			}
			for _, c := range l.Snapshot().Locks {
				held += c.Held
			}
			if held != left {
				t.Errorf("seed %d: %d leases are held, %d by the events", seed, held, left)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if seed%2 == 0 {
				cancel()
			}
			l.Close(ctx)
			synctest.Wait()
			for of, n := range g.held {
				if n != 0 {
					t.Errorf("seed %d: %d more leases of %s were acquired than were released or lost", seed, n, of)
				}
			}
			for k, n := range g.kinds {
				all[k] += n
			}
			joined += g.reentered
		})
	}
	if vacuous() {
		t.Errorf("test setup: got %v, %d re-entered", all, joined)
	}
}

// gauges is an observer that counts the held leases by name, mode and Reentered.
type gauges struct {
	t         *testing.T
	mu        sync.Mutex
	held      map[string]int
	kinds     map[core.Kind]int
	reentered int
}

func (g *gauges) Observe(_ context.Context, e core.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kinds[e.Kind]++
	of := fmt.Sprint(e.Name, " ", e.Mode, " ", e.Reentered)
	switch e.Kind {
	case core.Acquired:
		g.held[of]++
		if e.Reentered {
			g.reentered++
		}
	case core.Lost, core.Released:
		g.held[of]--
		if g.held[of] < 0 {
			g.t.Errorf("%s: got more released or lost than acquired", of)
		}
	}
}

// throng makes twenty callers acquire a few keys with different options, while calls of
// the store are refused, hang or lose their replies. Some leases are still held when it
// returns.
func throng(t *testing.T, l *core.Locker, store *scripted, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	var mu sync.Mutex
	r := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
	store.setAll(func(ctx context.Context, n int, do func() error) error {
		d := time.Duration(50+r(200)) * time.Microsecond
		switch r(40) {
		case 0:
			return loseReply(ctx, n, do)
		case 1:
			return hang(ctx, n, do)
		case 2:
			return refuse(ctx, n, do)
		}
		return slow(d, d)(ctx, n, do)
	})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 30 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r(400))*time.Millisecond)
				o := opts(core.TTL(300 * time.Millisecond))
				switch r(8) {
				case 0:
					o = append(o, core.Shared())
				case 1:
					o = append(o, core.Also("order:other"))
				case 2:
					o = append(o, core.NoRenew())
				case 3:
					o = append(o, core.Wait(0))
				}
				lease, err := l.Acquire(ctx, fmt.Sprint("order:", r(3)), o...)
				if err != nil {
					cancel()
					continue
				}
				if r(3) == 0 {
					if inner, err := l.TryAcquire(lease.Context(), lease.Key(), o...); err == nil {
						time.Sleep(time.Duration(r(3)) * time.Millisecond)
						inner.Release(ctx)
					}
				}
				time.Sleep(time.Duration(r(3)) * time.Millisecond)
				if r(20) == 0 {
					time.Sleep(400 * time.Millisecond)
				}
				if cancel(); i > 17 && r(10) == 0 {
					return // Close releases the lease
				}
				lease.Release(ctx)
			}
		})
	}
	wg.Wait()
	store.setAll(nil)
}

func TestLease_EndAfterAcquired(t *testing.T) {
	t.Parallel()
	// If Close releases a lease while the observer is handling Acquired, Released
	// follows Acquired.
	sim(t, "released by Close during Acquired", func(t *testing.T) {
		var l *core.Locker
		seen := &recorder{}
		l, _ = setup(t, core.WithObserver(observerFunc(func(ctx context.Context, e core.Event) {
			if e.Kind == core.Acquired {
				closeNow(l)
			}
			seen.Observe(ctx, e)
		})))
		lease := acquire(t, t.Context(), l, "order:1")
		wantErr(t, context.Cause(lease.Context()), core.ErrClosed)
		release(t, lease)
		if got := seen.kinds(); got != "acquired, released" {
			t.Errorf("got events %s", got)
		}
	})
	// If a lease is lost while the observer is handling Acquired, Lost follows
	// Acquired.
	sim(t, "lost during Acquired", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(observerFunc(func(ctx context.Context, e core.Event) {
			if e.Kind == core.Acquired {
				time.Sleep(time.Minute)
			}
			seen.Observe(ctx, e)
		})))
		lease := acquire(t, t.Context(), l, "order:1", core.NoRenew())
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		if got := seen.kinds(); got != "acquired, lost" {
			t.Errorf("got events %s", got)
		}
	})
}

func TestBusyEvents(t *testing.T) {
	t.Parallel()
	sim(t, "one per waiter", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		for name, of := range map[string]*core.Locker{"this process": l, "another process": newLocker(t, store.inner)} {
			seen.forget()
			holder := acquire(t, t.Context(), of, "order:1")
			var waiters sync.WaitGroup
			for range 3 {
				waiters.Go(func() {
					err := l.Do(t.Context(), "order:1", func(context.Context) error { time.Sleep(5 * time.Millisecond); return nil })
					wantErr(t, err, nil)
				})
			}
			synctest.Wait()
			if n := len(seen.all(core.Busy)); n != 3 {
				t.Errorf("%s: got %d while 3 wait, want 3", name, n)
			}
			for range 2 {
				_, err := l.TryAcquire(t.Context(), "order:1")
				wantErr(t, err, core.ErrBusy)
			}
			release(t, holder)
			waiters.Wait()
			if n := len(seen.all(core.Busy)); n != 5 {
				t.Errorf("%s: got %d in all, want 5", name, n)
			}
			for _, e := range seen.all(core.Busy) {
				if !e.Contended {
					t.Errorf("%s: got one that is not contended", name)
				}
			}
		}
	})
	sim(t, "free key has none", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(seen))
		outer := acquire(t, t.Context(), l, "order:1")
		release(t, acquire(t, outer.Context(), l, "order:1"))
		release(t, outer)
		if n := len(seen.all(core.Busy)); n != 0 {
			t.Errorf("got %d, want none", n)
		}
	})
}

func TestHoldID(t *testing.T) {
	t.Parallel()
	// The events of a hold have the hold's ID. Leases of other holds have other IDs.
	sim(t, "ID of a hold", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(seen))
		a := acquire(t, t.Context(), l, "order:1", core.Also("order:2"))
		b := acquire(t, a.Context(), l, "order:1")
		time.Sleep(11 * time.Second)
		ids := []string{a.ID(), b.ID()}
		release(t, b)
		release(t, a)
		c := acquire(t, t.Context(), l, "order:1")
		go l.Acquire(t.Context(), "order:1")
		synctest.Wait()
		release(t, c)
		synctest.Wait()
		last := seen.all(core.Acquired)[3]
		if ids = append(ids, c.ID()); last.Hold() != c.ID() {
			t.Errorf("a hold that was passed on had the ID %s and has %s", c.ID(), last.Hold())
		}
		n := map[string]int{}
		for _, e := range seen.events {
			n[e.Hold()]++
		}
		// The hold was passed on to the fourth caller, so the five events of the last
		// two leases have the hold's ID.
		if n[ids[0]] < 3 || n[ids[1]] < 3 || n[ids[2]] != 5 || len(ids[0]) != 11 || slices.Contains(ids[1:], ids[0]) {
			t.Errorf("holds %v have so many events: %v", ids, n)
		}
		if (core.Event{}).Hold() != "" || store.HoldID("") != "" {
			t.Error("there is an ID of nothing")
		}
		closeNow(l)
	})
}

func TestReport(t *testing.T) {
	t.Parallel()
	// Report fills an event with the facts of the acquire, even if the acquire fails.
	sim(t, "reports of an acquire", func(t *testing.T) {
		l, _ := setup(t)
		var e core.Event
		lease := acquire(t, t.Context(), l, "order:1", adapter.Report(&e))
		if e.Name != "order" || e.Mode != core.ModeExclusive || e.Contended || e.Kind != 0 || e.Hold() != lease.ID() {
			t.Errorf("got %+v", e)
		}
		_, err := l.Acquire(t.Context(), "order:1", core.Shared(), core.Wait(time.Second), adapter.Report(&e))
		if wantErr(t, err, core.ErrBusy); !e.Contended || e.Wait != time.Second || e.Mode != core.ModeShared {
			t.Errorf("got %+v", e)
		}
		release(t, lease)
		var none core.Event
		if _, err := l.Acquire(t.Context(), "", adapter.Report(&none)); !errors.Is(err, core.ErrInvalid) || none != (core.Event{}) {
			t.Errorf("got %+v and %v", none, err)
		}
	})
}
