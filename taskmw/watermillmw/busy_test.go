package watermillmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// both calls fn with a Lock and an Idempotent whose keys are busy.
func both(t *testing.T, l *core.Locker, wait []core.AcquireOption, opts []watermillmw.Option, fn func(t *testing.T, mw message.HandlerMiddleware)) {
	t.Helper()
	hold(t, l, "order:1")
	fn(t, locked(l, append(opts, watermillmw.Acquire(wait...))...))
	inside, end := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = paid(newOnce(t, l))(func(*message.Message) ([]*message.Message, error) {
			close(inside)
			<-end
			return nil, nil
		})(order())
	}()
	<-inside
	fn(t, paid(newOnce(t, l, once.Acquire(wait...)), opts...))
	close(end)
}

func TestBusy(t *testing.T) {
	t.Parallel()

	// This case covers hazard 76.
	sim(t, "waits and is nacked", func(t *testing.T) {
		for _, c := range []struct {
			wait []core.AcquireOption
			left time.Duration // the time until the context's deadline, 0 for none
			want time.Duration
		}{
			{nil, 0, watermillmw.InlineWait},
			{[]core.AcquireOption{core.Wait(20 * time.Second)}, 0, 20 * time.Second},
			{[]core.AcquireOption{core.Wait(time.Millisecond)}, 0, time.Millisecond},
			{[]core.AcquireOption{core.Wait(0)}, 0, 0},
			{nil, time.Hour, watermillmw.InlineWait},
			{nil, 4 * time.Second, 2 * time.Second},
		} {
			both(t, memLocker(t), c.wait, nil, func(t *testing.T, mw message.HandlerMiddleware) {
				msg := order()
				if c.left > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), c.left)
					defer cancel()
					under(ctx, msg)
				}
				began := time.Now()
				produced, err := mw(mustNotRun(t))(msg)
				postponed(t, fmt.Sprint(c), msg, produced, err)
				took := time.Since(began)
				if most := c.want + watermillmw.MaxPause; took < c.want+watermillmw.MaxPause/2 || took >= most {
					t.Errorf("%v: got %v, want a pause of %v to %v after that", c, took, watermillmw.MaxPause/2, watermillmw.MaxPause)
				}
			})
		}
	})

	sim(t, "half of an outer Timeout", func(t *testing.T) {
		both(t, memLocker(t), nil, nil, func(t *testing.T, mw message.HandlerMiddleware) {
			msg, began := order(), time.Now()
			produced, err := middleware.Timeout(4 * time.Second)(mw(mustNotRun(t)))(msg)
			postponed(t, "Timeout", msg, produced, err)
			if took := time.Since(began); took < 2*time.Second || took >= 4*time.Second {
				t.Errorf("got %v, want half of the Timeout and a pause", took)
			}
		})
	})

	sim(t, "inner Timeout limits the handler", func(t *testing.T) {
		waits := func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, msg.Context().Err()
		}
		l := memLocker(t)
		for _, mw := range []message.HandlerMiddleware{locked(l), paid(newOnce(t, l))} {
			msg := order()
			if _, err := mw(middleware.Timeout(time.Second)(waits))(msg); !errors.Is(err, context.DeadlineExceeded) || isNacked(msg) {
				t.Errorf("got %v, nacked %v, want %v", err, isNacked(msg), context.DeadlineExceeded)
			}
		}
	})

	sim(t, "skipped at once", func(t *testing.T) {
		both(t, memLocker(t), nil, []watermillmw.Option{watermillmw.OnBusy(watermillmw.Skip)}, func(t *testing.T, mw message.HandlerMiddleware) {
			msg, began := order(), time.Now()
			if produced, err := mw(mustNotRun(t))(msg); err != nil || produced != nil || isNacked(msg) || time.Since(began) != 0 {
				t.Errorf("got %v, %v, nacked %v after %v", produced, err, isNacked(msg), time.Since(began))
			}
		})
	})

	sim(t, "fails without its key", func(t *testing.T) {
		for name, acked := range map[string]bool{"policy Fail": false, "acked before": true} {
			var opts []watermillmw.Option
			if !acked {
				opts = append(opts, watermillmw.OnBusy(watermillmw.Fail))
			}
			both(t, memLocker(t), nil, opts, func(t *testing.T, mw message.HandlerMiddleware) {
				msg := order()
				if acked {
					msg.Ack()
				}
				_, err := mw(mustNotRun(t))(msg)
				var busy *core.BusyError
				if !errors.As(err, &busy) || busy.Key != "" || isNacked(msg) {
					t.Errorf("%s: got %v, nacked %v", name, err, isNacked(msg))
				}
				if all := fmt.Sprintf("%v %+v %#v", err, err, busy); strings.Contains(all, "order:1") || strings.Contains(all, "uuid-1") {
					t.Errorf("%s: %s shows the key", name, all)
				}
			})
		}
	})

	sim(t, "context done while waiting", func(t *testing.T) {
		for _, policy := range []watermillmw.Busy{watermillmw.Reschedule, watermillmw.Skip} {
			opts := []watermillmw.Option{watermillmw.OnBusy(policy)}
			both(t, memLocker(t), []core.AcquireOption{core.Wait(time.Hour)}, opts, func(t *testing.T, mw message.HandlerMiddleware) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				msg, began := under(ctx, order()), time.Now()
				produced, err := mw(mustNotRun(t))(msg)
				postponed(t, "canceled", msg, produced, err)
				if took := time.Since(began); took != 3*time.Second {
					t.Errorf("got %v, want no pause after 3s", took)
				}
			})
		}
	})

	sim(t, "queue of the process full", func(t *testing.T) {
		l, err := core.New(memstore.New(), core.WithMaxWaiting(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		hold(t, l, "order:1")
		go func() {
			if lease, err := l.Acquire(context.Background(), "order:1"); err == nil {
				_ = lease.Release(context.Background())
			}
		}()
		time.Sleep(time.Second)
		msg, began := order(), time.Now()
		produced, err := locked(l)(mustNotRun(t))(msg)
		postponed(t, "full", msg, produced, err)
		if took := time.Since(began); took < watermillmw.InlineWait {
			t.Errorf("got a nack after %v, want the time that it may wait", took)
		}
	})
}

// TestBusy_SharedBound checks that a Lock and an Idempotent share one bound of their
// waits, in either order (hazard 76). A core.Wait of the inner middleware is not
// shortened.
func TestBusy_SharedBound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		inner []core.AcquireOption
		most  time.Duration
	}{
		"default":        {nil, watermillmw.InlineWait},
		"inner wait set": {[]core.AcquireOption{core.Wait(4 * time.Second)}, 8 * time.Second},
	} {
		for _, order := range []string{"Lock first", "Idempotent first"} {
			sim(t, name+" "+order, func(t *testing.T) {
				l := memLocker(t)
				lock, idempotent := locked(l), paid(newOnce(t, l, once.Acquire(c.inner...)))
				handler, free := lock(idempotent(mustNotRun(t))), hold(t, l, "order:1")
				if order == "Idempotent first" {
					handler = paid(newOnce(t, l))(locked(l, watermillmw.Acquire(c.inner...))(mustNotRun(t)))
				}
				running, end := inProgress(t, l)
				<-running
				outer := free
				if order == "Idempotent first" {
					outer = end
				}
				time.AfterFunc(4*time.Second, outer)
				msg, began := delivered("uuid-1", `{"id":1}`), time.Now()
				produced, err := handler(msg)
				took := time.Since(began)
				postponed(t, order, msg, produced, err)
				if most := c.most + watermillmw.MaxPause; took > most || took < c.most {
					t.Errorf("got a nack after %v, want %v to %v", took, c.most, most)
				}
				free()
				end()
			})
		}
	}
}

// inProgress begins a run of the order 1. The run continues until end is called, and
// then fails.
func inProgress(t *testing.T, l *core.Locker) (running <-chan struct{}, end func()) {
	t.Helper()
	inside, stop := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = paid(newOnce(t, l))(func(*message.Message) ([]*message.Message, error) {
			close(inside)
			<-stop
			return nil, errors.New("no connection")
		})(order())
	}()
	return inside, sync.OnceFunc(func() { close(stop) })
}

// TestBusy_NackAfterRelease checks that a message is nacked after the outer middleware
// has released its key (hazard 76). Otherwise Skip could ack the next delivery, and the
// message would be lost.
func TestBusy_NackAfterRelease(t *testing.T) {
	t.Parallel()
	skip := watermillmw.OnBusy(watermillmw.Skip)
	for name, chain := range map[string]func(t *testing.T, l *core.Locker) message.HandlerMiddleware{
		"Idempotent first": func(t *testing.T, l *core.Locker) message.HandlerMiddleware {
			hold(t, l, "order:1")
			return func(h message.HandlerFunc) message.HandlerFunc { return paid(newOnce(t, l), skip)(locked(l, quick)(h)) }
		},
		"Lock first": func(t *testing.T, l *core.Locker) message.HandlerMiddleware {
			running, end := inProgress(t, l)
			<-running
			t.Cleanup(end)
			return func(h message.HandlerFunc) message.HandlerFunc { return locked(l, skip)(paid(newOnce(t, l))(h)) }
		},
		"Lock with KeepFor first": func(t *testing.T, l *core.Locker) message.HandlerMiddleware {
			hold(t, l, "inner:1")
			inner := watermillmw.Lock(l, "inner", watermillmw.Payload("id"))
			return func(h message.HandlerFunc) message.HandlerFunc {
				return locked(l, skip, watermillmw.Acquire(core.KeepFor(time.Hour)))(inner(h))
			}
		},
		"two Idempotents": func(t *testing.T, l *core.Locker) message.HandlerMiddleware {
			hold(t, l, "order:1")
			outer := watermillmw.Idempotent(newOnce(t, l), "outer", watermillmw.UUID(), skip)
			return func(h message.HandlerFunc) message.HandlerFunc {
				return outer(paid(newOnce(t, l))(locked(l, quick)(h)))
			}
		},
	} {
		sim(t, name, func(t *testing.T) {
			faults := new(storetest.Faults)
			l := newLocker(t, storetest.Faulty(memstore.New(), faults))
			handler := chain(t, l)(mustNotRun(t))
			faults.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault {
				if op == storetest.OpRelease {
					return storetest.Fault{Delay: time.Second}
				}
				return storetest.Fault{}
			})
			msg := order()
			go func() { _, _ = handler(msg) }()
			<-msg.Nacked()
			again := order()
			produced, err := handler(again)
			postponed(t, "again", again, produced, err)
		})
	}
}

// TestBusy_StoreUnavailable checks that messages do not run and are not acked while the
// store is unavailable. They fail only under the policy Fail.
func TestBusy_StoreUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy watermillmw.Busy
		nacked bool
	}{"Reschedule": {watermillmw.Reschedule, true}, "Skip": {watermillmw.Skip, true}, "Fail": {watermillmw.Fail, false}} {
		sim(t, name, func(t *testing.T) {
			l, down := outage(t)
			down(true)
			for _, mw := range []message.HandlerMiddleware{
				locked(l, watermillmw.OnBusy(c.policy), watermillmw.Acquire(core.Wait(time.Hour))),
				paid(newOnce(t, l, once.Acquire(core.Wait(time.Hour))), watermillmw.OnBusy(c.policy)),
			} {
				msg, began := order(), time.Now()
				produced, err := mw(mustNotRun(t))(msg)
				took := time.Since(began)
				if c.nacked {
					postponed(t, name, msg, produced, err)
				} else if !errors.Is(err, core.ErrUnavailable) || isNacked(msg) {
					t.Errorf("got %v, nacked %v", err, isNacked(msg))
				}
				if most := 2*watermillmw.InlineWait + watermillmw.MaxPause; took > most || took < watermillmw.InlineWait {
					t.Errorf("got %v, want %v to %v", took, watermillmw.InlineWait, most)
				}
			}
		})
	}
}

func TestBusy_LockerClosed(t *testing.T) {
	t.Parallel()
	sim(t, "message is nacked", func(t *testing.T) {
		l := memLocker(t)
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, mw := range []message.HandlerMiddleware{locked(l), paid(newOnce(t, l)), locked(l, watermillmw.FailOpen())} {
			msg := order()
			produced, err := mw(mustNotRun(t))(msg)
			postponed(t, "closed", msg, produced, err)
		}
	})
}
