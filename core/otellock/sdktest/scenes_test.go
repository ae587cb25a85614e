package sdktest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/otellock"
	"github.com/lockkit/lockkit/core/testserver"
)

// scenes are uses of locks with all their measurements. Extensions are left out,
// because their number depends on the duration of a scene. The values of the attributes
// are in the order of the attributes' names: error.type, contended, mode, name,
// outcome.
var scenes = []struct {
	name string
	opts []otellock.Option
	play func(t *testing.T, s *stage)
	want string
}{
	{
		name: "free key",
		play: func(t *testing.T, s *stage) { release(t, try(t, s.locks, "order:1"), nil) },
		want: `
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive order released: 1`,
	},
	{
		name: "a reader and a permit",
		play: func(t *testing.T, s *stage) {
			release(t, try(t, s.locks, "order:1", core.Shared()), nil)
			release(t, try(t, s.locks, "order:2", core.Permits(1, 3)), nil)
		},
		want: `
			acquire.duration false permits order acquired: 1
			acquire.duration false shared order acquired: 1
			hold.duration permits order released: 1
			hold.duration shared order released: 1`,
	},
	{
		name: "lease that joins",
		play: func(t *testing.T, s *stage) {
			outer := try(t, s.locks, "order:1")
			inner, err := s.locks.TryAcquire(outer.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			release(t, inner, nil)
			release(t, outer, nil)
		},
		want: `
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive order released: 2`,
	},
	{
		name: "a key that is taken",
		play: func(t *testing.T, s *stage) {
			try(t, s.others, "order:1")
			_, err := s.locks.TryAcquire(t.Context(), "order:1")
			wantErr(t, err, core.ErrBusy)
		},
		want: `acquire.duration true exclusive order busy: 1`,
	},
	{
		name: "a key that was taken",
		play: func(t *testing.T, s *stage) {
			other := try(t, s.others, "order:1")
			go func() {
				<-s.taken
				release(t, other, nil)
			}()
			lease, err := s.locks.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			release(t, lease, nil)
		},
		want: `
			acquire.duration true exclusive order acquired: 1
			hold.duration exclusive order released: 1`,
	},
	{
		name: "a caller that leaves",
		play: func(t *testing.T, s *stage) {
			try(t, s.others, "order:1")
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-s.taken
				cancel()
			}()
			_, err := s.locks.Acquire(ctx, "order:1")
			wantErr(t, err, context.Canceled)
		},
		want: `acquire.duration true exclusive order canceled: 1`,
	},
	{
		name: "Locker closed while a caller waits",
		play: func(t *testing.T, s *stage) {
			try(t, s.others, "order:1")
			go func() {
				<-s.taken
				_ = s.locks.Close(context.Background())
			}()
			_, err := s.locks.Acquire(t.Context(), "order:1")
			wantErr(t, err, core.ErrClosed)
		},
		want: `acquire.duration closed true exclusive order failed: 1`,
	},
	{
		name: "a server that is down",
		play: func(t *testing.T, s *stage) {
			s.proxy.Down()
			_, err := s.locks.TryAcquire(t.Context(), "order:1")
			wantErr(t, err, core.ErrUnavailable)
		},
		want: `acquire.duration unavailable false exclusive order failed: 1`,
	},
	{
		name: "server that falls silent",
		play: func(t *testing.T, s *stage) {
			lease := try(t, s.locks, "order:1", core.TTL(time.Second))
			s.proxy.Partition()
			<-lease.Context().Done()
			release(t, lease, core.ErrLost)
			s.until(t, "losses order", 1)
		},
		want: `
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive order lost: 1
			losses order: 1`,
	},
	{
		name: "release of a lost lock",
		play: func(t *testing.T, s *stage) {
			lease := try(t, s.locks, "order:1")
			s.wipe(t)
			release(t, lease, core.ErrLost)
		},
		want: `
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive order lost: 1
			losses order: 1`,
	},
	{
		name: "release without an answer",
		play: func(t *testing.T, s *stage) {
			lease := try(t, s.locks, "order:1")
			s.proxy.Partition()
			release(t, lease, core.ErrUnavailable)
			s.proxy.Heal()
			s.until(t, "cleanups order", 1)
		},
		want: `
			acquire.duration false exclusive order acquired: 1
			cleanups order: 1
			hold.duration exclusive order unconfirmed: 1`,
	},
	{
		name: "a lease beyond MaxHold",
		play: func(t *testing.T, s *stage) {
			lease := try(t, s.locks, "order:1", core.MaxHold(100*time.Millisecond))
			s.until(t, "overruns order", 1)
			release(t, lease, nil)
		},
		want: `
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive order released: 1
			overruns order: 1`,
	},
	{
		name: "names that are too many",
		opts: []otellock.Option{otellock.MaxNames(1)},
		play: func(t *testing.T, s *stage) {
			for _, key := range []string{"order:1", "account:1", "invoice:1"} {
				release(t, try(t, s.locks, key), nil)
			}
		},
		want: `
			acquire.duration false exclusive _OTHER acquired: 2
			acquire.duration false exclusive order acquired: 1
			hold.duration exclusive _OTHER released: 2
			hold.duration exclusive order released: 1
			misuses _OTHER: 1`,
	},
	{
		name: "calls of once",
		play: playCalls,
		want: `
			acquire.duration false run order acquired: 6
			acquire.duration false run order answered: 2
			acquire.duration true run order busy: 1
			call.duration order failed false: 2
			call.duration order in_progress false: 1
			call.duration order indeterminate false: 1
			call.duration order mismatch false: 1
			call.duration order ran false: 3
			call.duration order ran true: 1
			call.duration order replayed false: 1
			call.duration order unreplayable false: 1
			hold.duration run order released: 6`,
	},
}

// playCalls makes calls of package once, at least one for each outcome of a call.
func playCalls(t *testing.T, s *stage) {
	runs, err := once.New(s.locks)
	if err != nil {
		t.Fatal(err)
	}
	careful, err := once.New(s.locks, once.AtMostOnce())
	if err != nil {
		t.Fatal(err)
	}
	do := func(o *once.Once, c once.Call, a once.Answer, fails, want error) {
		t.Helper()
		c.Name = "order"
		_, err := o.Do(t.Context(), c, func(context.Context) (once.Answer, error) { return a, fails })
		wantErr(t, err, want)
	}
	broken := errors.New("broken")
	do(runs, once.Call{Key: "1"}, once.Answer{}, nil, nil)
	do(runs, once.Call{Key: "1"}, once.Answer{}, nil, nil) // receives the stored result
	do(runs, once.Call{Key: "1", Fingerprint: []byte("another")}, once.Answer{}, nil, once.ErrMismatch)
	do(runs, once.Call{Key: "2"}, once.Answer{}, broken, broken)
	do(runs, once.Call{Key: "2"}, once.Answer{}, nil, nil) // runs again
	do(runs, once.Call{Key: "3"}, once.Answer{Unreplayable: true}, nil, nil)
	do(runs, once.Call{Key: "3"}, once.Answer{}, nil, once.ErrUnreplayable)
	_, err = runs.Do(t.Context(), once.Call{Name: "order", Key: "4"}, func(context.Context) (once.Answer, error) {
		do(runs, once.Call{Key: "4"}, once.Answer{}, nil, once.ErrInProgress)
		return once.Answer{}, nil
	})
	wantErr(t, err, nil)
	do(careful, once.Call{Key: "5"}, once.Answer{}, once.ErrIndeterminate, once.ErrIndeterminate)
	do(careful, once.Call{Key: "5"}, once.Answer{}, nil, once.ErrIndeterminate)
}

func TestScenes(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, c := range scenes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, server, c.opts...)
			c.play(t, s)
			points := s.points(t)
			for series := range points {
				if strings.HasPrefix(series, "extensions ") {
					delete(points, series)
				}
			}
			want := strings.ReplaceAll(strings.TrimSpace(c.want), "\t", "")
			if got := lines(points); got != want {
				t.Errorf("it is measured:\n%s\nwant:\n%s", got, want)
			}
			if _, ok := points["losses order"]; !ok {
				t.Error("the counter of losses does not begin with 0")
			}
		})
	}

	t.Run("extensions and one fails", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		lease := try(t, s.locks, "order:1", core.TTL(6*time.Second))
		s.proxy.Down()
		s.until(t, "extensions unavailable order", 1)
		s.proxy.Up()
		s.until(t, "extensions order", 1)
		release(t, lease, nil)
	})

	t.Run("key passed on in the process", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 50 {
					if err := s.locks.Do(t.Context(), "order:1", func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		points := s.points(t)
		acquired := points["acquire.duration false exclusive order acquired"] + points["acquire.duration true exclusive order acquired"]
		if released := points["hold.duration exclusive order released"]; acquired != 400 || released != 400 {
			t.Errorf("400 leases were acquired %g times and released %g times", acquired, released)
		}
		if passes := points["passes order"]; passes < 1 || passes > 400 {
			t.Errorf("their hold was passed on %g times", passes)
		}
	})
}

func try(t *testing.T, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t *testing.T, l *core.Lease, want error) {
	t.Helper()
	wantErr(t, l.Release(context.Background()), want)
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
