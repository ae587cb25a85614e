package sdktest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

func TestGauges(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)

	t.Run("held and waiting with ages", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		defer s.tel.Watch(s.locks)()
		other := try(t, s.others, "order:1")
		lease := try(t, s.locks, "order:2")
		done := make(chan error, 1)
		go func() {
			done <- s.locks.Do(t.Context(), "order:1", func(context.Context) error { return nil })
		}()
		<-s.taken
		time.Sleep(10 * time.Millisecond) // the minimum age
		points := s.points(t)
		if points["lease.active exclusive order"] != 1 || points["request.pending exclusive order"] != 1 {
			t.Errorf("one is held and one waits:\n%s", lines(points))
		}
		for _, age := range []string{"lease.age.max order", "request.age.max order"} {
			if points[age] < 0.01 || points[age] > patience.Seconds() {
				t.Errorf("%s is %g", age, points[age])
			}
		}
		release(t, other, nil)
		wantErr(t, <-done, nil)
		release(t, lease, nil)
		points = s.points(t)
		for _, gauge := range []string{"lease.active exclusive order", "request.pending exclusive order", "lease.age.max order", "request.age.max order"} {
			if now, there := points[gauge]; !there || now != 0 {
				t.Errorf("%s is %g at the end", gauge, now)
			}
		}
	})

	t.Run("claim of unknown outcome", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		defer s.tel.Watch(s.locks)()
		lease := try(t, s.locks, "order:1")
		s.proxy.Partition()
		release(t, lease, core.ErrUnavailable)
		if n := s.points(t)["cleanup.pending"]; n != 1 {
			t.Errorf("%g are pending", n)
		}
		s.proxy.Heal()
		s.until(t, "cleanups order", 1)
		deadline := time.Now().Add(patience)
		for s.points(t)["cleanup.pending"] != 0 {
			if time.Now().After(deadline) {
				t.Fatal("it is pending for ever")
			}
			time.Sleep(5 * time.Millisecond)
		}
	})

	t.Run("no gauge is negative", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		stop := s.tel.Watch(s.locks)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all sync.WaitGroup
		for _, opts := range [][]core.AcquireOption{nil, {core.Shared()}, {core.Permits(1, 2)}} {
			for range 4 {
				all.Go(func() {
					opts := append(opts, core.TTL(time.Second), core.NoRenew(), core.Wait(100*time.Millisecond))
					for ctx.Err() == nil {
						err := s.locks.Do(ctx, "order:1", func(ctx context.Context) error {
							time.Sleep(time.Millisecond)
							return nil
						}, opts...)
						if err != nil && !errors.Is(err, core.ErrBusy) && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrUnavailable) {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Go(func() { // deletes locks while they are held
			for ctx.Err() == nil {
				keys, _ := s.client.Keys(ctx, s.prefix+"*").Result()
				if len(keys) > 0 {
					s.client.Del(ctx, keys...)
				}
				time.Sleep(3 * time.Millisecond)
			}
		})
		deadline, rounds := time.Now().Add(patience), 0
		for losses := 0.0; losses < 20 || rounds < 200; rounds++ {
			points := s.points(t)
			for series, value := range points {
				if value < 0 {
					t.Fatalf("%s is %g", series, value)
				}
			}
			if losses = points["losses order"]; time.Now().After(deadline) {
				t.Fatalf("only %g leases were lost", losses)
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
		all.Wait()
		points := s.points(t)
		ends, begins := 0.0, 0.0
		for _, mode := range []string{"exclusive", "shared", "permits"} {
			if n := points["lease.active "+mode+" order"] + points["request.pending "+mode+" order"]; n != 0 {
				t.Errorf("at the end there are %g, %s", n, mode)
			}
			for _, end := range []string{"released", "unconfirmed", "lost"} {
				ends += points["hold.duration "+mode+" order "+end]
			}
			for _, contended := range []string{"false", "true"} {
				begins += points["acquire.duration "+contended+" "+mode+" order acquired"]
			}
		}
		if begins != ends || begins == 0 {
			t.Errorf("%g leases have %g ends", begins, ends)
		}
		stop()
		if now, there := s.points(t)["lease.active exclusive order"]; there {
			t.Errorf("the Locker is still reported, as %g", now)
		}
	})
}
