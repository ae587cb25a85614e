package deadline_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/internal/deadline"
)

var (
	errSlow  = errors.New("slow")
	errBored = errors.New("bored")
)

type key struct{}

// ways are how a context can be used before its end is looked at.
var ways = map[string]func(ctx context.Context){
	"untouched":       func(context.Context) {},
	"waited for":      func(ctx context.Context) { ctx.Done() },
	"asked":           func(ctx context.Context) { _, _, _ = ctx.Err(), ctx.Value(key{}), context.Cause(ctx) },
	"with a child":    func(ctx context.Context) { context.AfterFunc(ctx, func() {}) },
	"without its end": func(ctx context.Context) { context.WithoutCancel(ctx).Done() },
}

// In each way of use and of ending it says what a context of package context does.
func TestIsAContext(t *testing.T) {
	t.Parallel()
	for used, use := range ways {
		for name, end := range map[string]func(cancel func(), parent context.CancelCauseFunc){
			"lasts":                 func(func(), context.CancelCauseFunc) {},
			"is cancelled":          func(cancel func(), _ context.CancelCauseFunc) { cancel() },
			"its time is over":      func(func(), context.CancelCauseFunc) { time.Sleep(time.Second) },
			"its parent ends":       func(_ func(), parent context.CancelCauseFunc) { parent(errBored) },
			"its parent ends first": func(cancel func(), parent context.CancelCauseFunc) { parent(errBored); cancel() },
		} {
			for _, cause := range []error{nil, errSlow} {
				t.Run(used+", "+name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						parent, stop := context.WithCancelCause(context.WithValue(context.Background(), key{}, 1))
						defer stop(nil)
						model, cancelModel := context.WithTimeoutCause(parent, time.Second, cause)
						defer cancelModel()
						c := deadline.New(parent, time.Second, cause)
						defer c.Cancel()
						use(c)
						end(func() { c.Cancel(); cancelModel() }, stop)
						synctest.Wait()
						for range 2 { // the second time after Done
							if c.Err() != model.Err() || context.Cause(c) != context.Cause(model) {
								t.Errorf("got %v because of %v, want %v because of %v", c.Err(), context.Cause(c), model.Err(), context.Cause(model))
							}
							got, _ := c.Deadline()
							if want, _ := model.Deadline(); !got.Equal(want) || c.Value(key{}) != 1 {
								t.Errorf("got %v and %v, want %v and 1", got, c.Value(key{}), want)
							}
							if isDone(c) != isDone(model) {
								t.Errorf("done is %v, want %v", isDone(c), isDone(model))
							}
						}
						child, cancel := context.WithCancel(c)
						defer cancel()
						if child.Err() != model.Err() || context.Cause(child) != context.Cause(model) {
							t.Errorf("a child got %v because of %v", child.Err(), context.Cause(child))
						}
					})
				})
			}
		}
	}
	t.Run("it stays ended as it was seen to end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			parent, stop := context.WithCancelCause(context.Background())
			defer stop(nil)
			c := deadline.New(parent, time.Second, errSlow)
			time.Sleep(time.Second)
			for range 2 {
				if c.Err() != context.DeadlineExceeded || context.Cause(c) != errSlow || !isDone(c) {
					t.Errorf("got %v because of %v", c.Err(), context.Cause(c))
				}
				stop(errBored)
				c.Cancel()
			}
		})
	})
	t.Run("a parent that ends earlier", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			parent, stop := context.WithTimeoutCause(context.Background(), time.Second, errBored)
			defer stop()
			c := deadline.New(parent, time.Minute, errSlow)
			defer c.Cancel()
			if got, _ := c.Deadline(); time.Until(got) != time.Second {
				t.Errorf("got %v", time.Until(got))
			}
			time.Sleep(2 * time.Second)
			if c.Err() != context.DeadlineExceeded || context.Cause(c) != errBored {
				t.Errorf("got %v because of %v", c.Err(), context.Cause(c))
			}
		})
	})
}

func isDone(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestManyUseOne(t *testing.T) {
	t.Parallel()
	for range 200 {
		c := deadline.New(t.Context(), time.Hour, nil)
		var wg sync.WaitGroup
		for range 3 {
			for _, use := range ways {
				wg.Go(func() { use(c) })
			}
			wg.Go(func() { <-c.Done() })
		}
		runtime.Gosched()
		c.Cancel()
		wg.Wait()
		if c.Err() != context.Canceled {
			t.Fatal(c.Err())
		}
	}
}

func TestNobodyWaitsNoTimer(t *testing.T) {
	parent := context.Background()
	n := testing.AllocsPerRun(100, func() {
		c := deadline.New(parent, time.Hour, errSlow)
		_, _, _ = c.Err(), c.Value(key{}), context.Cause(c)
		c.Cancel()
	})
	if n > 1 {
		t.Errorf("%.0f allocations, want that of the context", n)
	}
}
