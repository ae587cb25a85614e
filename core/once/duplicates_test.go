package once_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
)

// patienceOfRun limits the time for which a run of a crowd waits for the other calls to
// return.
const patienceOfRun = time.Second

// crowd makes the same call n times at once, from several processes, and returns the
// outcomes and errors. Each run waits until enough of the calls have returned, for at
// most patienceOfRun.
func crowd(t *testing.T, processes []*once.Once, r *runs, n, enough int) (outs []once.Outcome, errs []error) {
	t.Helper()
	var mu sync.Mutex
	over := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			out, err := processes[i%len(processes)].Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
				run := r.count() + 1
				r.note(ctx)
				select {
				case <-over:
				case <-time.After(patienceOfRun):
				}
				return once.Answer{Value: fmt.Appendf(nil, "receipt %d", run)}, nil
			})
			mu.Lock()
			defer mu.Unlock()
			outs, errs = append(outs, out), append(errs, err)
			if len(errs) == enough {
				close(over)
			}
		})
	}
	all.Wait()
	return outs, errs
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	const n = 50
	refusedAtOnce := func(t *testing.T, processes []*once.Once) {
		var r runs
		outs, errs := crowd(t, processes, &r, n, n-1)
		r.want(t, 1)
		ran := 0
		for i, err := range errs {
			switch {
			case err == nil && !outs[i].Replayed:
				ran++
			case err == nil:
			case errors.Is(err, once.ErrInProgress):
				var busy *core.BusyError
				ok := errors.As(err, &busy)
				if !ok || busy.RetryAfter <= 0 || busy.Name != "charge" {
					t.Errorf("%v does not say when to come again", err)
				}
			default:
				t.Errorf("got %v", err)
			}
		}
		if ran != 1 {
			t.Errorf("%d callers got a run of their own", ran)
		}
		for _, o := range processes {
			replayed(t, o, charge("1"), "receipt 1", 1)
		}
	}
	answered := func(t *testing.T, processes []*once.Once) {
		var r runs
		outs, errs := crowd(t, processes, &r, n, n)
		r.want(t, 1)
		replays := 0
		for i, err := range errs {
			if err != nil || string(outs[i].Value) != "receipt 1" || outs[i].Attempt != 1 {
				t.Errorf("got %+v and %v", outs[i], err)
			}
			if outs[i].Replayed {
				replays++
			}
		}
		if replays != n-1 {
			t.Errorf("%d replays, want %d", replays, n-1)
		}
	}
	const atOnce = "50 calls at once"
	const waiting = "50 calls that wait"
	sim(t, atOnce, func(t *testing.T) { refusedAtOnce(t, processes(t, memstore.New())) })
	sim(t, waiting, func(t *testing.T) { answered(t, processes(t, memstore.New(), wait(time.Hour))) })
	t.Run("on Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		server.Do("PING")
		all := func(opts ...once.Option) (all []*once.Once) {
			for range 3 {
				all = append(all, onRedis(t, server.Addr, opts...))
			}
			return all
		}
		t.Run(atOnce, func(t *testing.T) { refusedAtOnce(t, all()) })
		server.Do("FLUSHALL")
		t.Run(waiting, func(t *testing.T) { answered(t, all(wait(patience))) })
	})
	sim(t, "store that locks nothing", func(t *testing.T) {
		store := newFlaky()
		store.unlimited = true
		var r runs
		crowd(t, processes(t, store), &r, n, n)
		r.want(t, n)
	})
	// A waiter does not get the failure of another caller. Its own fn runs next.
	sim(t, "waiter behind a failure", func(t *testing.T) {
		store, declined := memstore.New(), errors.New("declined")
		var r runs
		var all sync.WaitGroup
		for _, o := range processes(t, store, wait(time.Hour)) {
			all.Go(func() {
				out, err := o.Do(t.Context(), charge("1"), func(ctx context.Context) (once.Answer, error) {
					time.Sleep(time.Minute)
					if r.note(ctx) < 3 {
						return once.Answer{}, declined
					}
					return once.Answer{Value: []byte("receipt")}, nil
				})
				if (err == nil) != (out.Attempt == 3) {
					t.Errorf("got %+v and %v", out, err)
				}
			})
		}
		all.Wait()
		r.want(t, 3)
	})
	// A saved answer wakes a waiter at once; the waiter does not depend on a poll.
	sim(t, "waiter is woken", func(t *testing.T) {
		store := memstore.New()
		o, begun := newOnce(t, store, wait(time.Hour)), make(chan struct{})
		const length = 37*time.Second + 123456789
		var all sync.WaitGroup
		all.Go(func() {
			_, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
				close(begun)
				time.Sleep(length)
				return once.Answer{Value: []byte("receipt")}, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-begun
		start := time.Now()
		for _, o := range append(processes(t, store, wait(time.Hour)), o) {
			all.Go(func() {
				replayed(t, o, charge("1"), "receipt", 1)
				if d := time.Since(start); d != length {
					t.Errorf("answered after %v, and the run took %v", d, length)
				}
			})
		}
		all.Wait()
	})
	// A waiter whose time limit has passed gets an error, and its fn is not run.
	sim(t, "waiter that waited too long", func(t *testing.T) {
		store := memstore.New()
		o := newOnce(t, store)
		_, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			start := time.Now()
			err := refused(t, newOnce(t, store, wait(time.Minute)), charge("1"), once.ErrInProgress, core.ErrBusy)
			if !errors.As(err, new(*core.BusyError)) {
				t.Errorf("%v does not say when to come again", err)
			}
			if d := time.Since(start); d != time.Minute {
				t.Errorf("got a wait of %v", d)
			}
			return once.Answer{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// processes returns three Onces on one store, which stand for three processes.
func processes(t *testing.T, store core.Store, opts ...once.Option) []*once.Once {
	t.Helper()
	all := make([]*once.Once, 3)
	for i := range all {
		all[i] = newOnce(t, store, opts...)
	}
	return all
}
