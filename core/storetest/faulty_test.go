package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestFaulty_WithoutFaults(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) func() store.Store {
			s := memstore.New()
			return func() store.Store { return storetest.Faulty(s, &storetest.Faults{}) }
		},
		Unit: 100 * time.Millisecond,
		Wrap: synctest.Test,
	})
}

func TestFaulty_SlowStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			s := memstore.New()
			var faults storetest.Faults
			faults.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
				return storetest.Fault{Delay: 2 * time.Millisecond, ReplyDelay: time.Millisecond}
			})
			t.Cleanup(faults.Wait)
			return func() store.Store { return storetest.Faulty(s, &faults) }
		},
		Unit: 100 * time.Millisecond,
		Wrap: synctest.Test,
	})
}

var errBroken = errors.New("connection broken")

func TestFaulty(t *testing.T) {
	t.Parallel()
	claim := store.Claim{
		Key: "key", Owner: "owner", Lease: "lease",
		Weight: store.All, Limit: store.All, TTL: time.Minute,
	}
	for name, run := range map[string]func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store){
		"lost request changes nothing": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			f.Next(storetest.OpAcquire, storetest.Fault{Lose: storetest.LoseRequest, Err: errBroken})
			if _, err := faulty.Acquire(t.Context(), claim); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want the fault's error", err)
			}
			if x := s.Extend(t.Context(), []store.Claim{claim}); !errors.Is(x[0].Err, store.ErrLost) {
				t.Errorf("the claim is held: %v", x[0].Err)
			}
		},
		"lost reply hides the grant": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			f.Next(storetest.OpAcquire, storetest.Fault{Lose: storetest.LoseReply, Err: errBroken})
			if _, err := faulty.Acquire(t.Context(), claim); !errors.Is(err, errBroken) {
				t.Errorf("got %v, want the fault's error", err)
			}
			if x := s.Extend(t.Context(), []store.Claim{claim}); x[0].Err != nil {
				t.Errorf("the claim is not held: %v", x[0].Err)
			}
		},
		"call without a reply hangs": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			f.Next(storetest.OpRelease, storetest.Fault{Lose: storetest.LoseReply})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, errBroken)
			defer cancel()
			start := time.Now()
			if err := faulty.Release(ctx, claim); !errors.Is(err, errBroken) || time.Since(start) != time.Hour {
				t.Errorf("got %v after %v, want the context's cause after an hour", err, time.Since(start))
			}
		},
		"delayed request outlives its caller": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			f.Next(storetest.OpAcquire, storetest.Fault{Delay: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := faulty.Acquire(ctx, claim); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want the context's error", err)
			}
			if x := s.Extend(t.Context(), []store.Claim{claim}); !errors.Is(x[0].Err, store.ErrLost) {
				t.Errorf("the claim is held too early: %v", x[0].Err)
			}
			time.Sleep(time.Minute)
			if x := s.Extend(t.Context(), []store.Claim{claim}); x[0].Err != nil {
				t.Errorf("the claim is not held: %v", x[0].Err)
			}
		},
		"request arrives twice": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			if _, err := s.Acquire(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			f.Next(storetest.OpRelease, storetest.Fault{Twice: true})
			if err := faulty.Release(t.Context(), claim); err != nil {
				t.Errorf("got %v, want the first reply", err)
			}
			if _, err := s.Acquire(t.Context(), claim); !errors.Is(err, store.ErrLost) {
				t.Errorf("got %v, want the tombstone of the second release", err)
			}
		},
		"failed extension answers each claim": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			f.Next(storetest.OpExtend, storetest.Fault{Lose: storetest.LoseRequest, Err: store.ErrUnavailable})
			x := faulty.Extend(t.Context(), []store.Claim{claim, claim})
			if len(x) != 2 || !errors.Is(x[0].Err, store.ErrUnavailable) || !errors.Is(x[1].Err, store.ErrUnavailable) {
				t.Errorf("got %v, want two errors", x)
			}
			if n := f.Calls(storetest.OpExtend); n != 1 {
				t.Errorf("counted %d calls, want 1", n)
			}
		},
		"broken watch is opened again": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			woken, err := faulty.(store.Watcher).Watch(t.Context(), claim)
			if err != nil {
				t.Fatal(err)
			}
			f.BreakWatches()
			if _, open := <-woken; open {
				t.Error("the channel was not closed")
			}
			if _, err = faulty.(store.Watcher).Watch(t.Context(), claim); err != nil {
				t.Error(err)
			}
		},
		"lost wake-ups": func(t *testing.T, s *memstore.Store, f *storetest.Faults, faulty store.Store) {
			waiting := claim
			waiting.Owner, waiting.Lease, waiting.Wait = "other", "other", true
			woken, err := faulty.(store.Watcher).Watch(t.Context(), waiting)
			if err != nil {
				t.Fatal(err)
			}
			for _, muted := range []bool{true, false} {
				f.Mute(muted)
				_, err1 := s.Acquire(t.Context(), claim)
				_, err2 := s.Acquire(t.Context(), waiting)
				if err1 != nil || !errors.Is(err2, store.ErrBusy) || s.Release(t.Context(), claim) != nil {
					t.Fatal(err1, err2)
				}
				synctest.Wait()
				if len(woken) == 0 != muted {
					t.Errorf("muted %v: %d wake-ups arrived", muted, len(woken))
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, f := memstore.New(), &storetest.Faults{}
				run(t, s, f, storetest.Faulty(s, f))
			})
		})
	}
}

func TestFaulty_Watcher(t *testing.T) {
	t.Parallel()
	type plain struct{ store.Store }
	m := memstore.New()
	for name, s := range map[string]store.Store{"a Store alone": plain{m}, "a Watcher": m} {
		_, watches := s.(store.Watcher)
		if _, ok := storetest.Faulty(s, &storetest.Faults{}).(store.Watcher); ok != watches {
			t.Errorf("%s: is a store.Watcher: %v, want %v", name, ok, watches)
		}
	}
}
