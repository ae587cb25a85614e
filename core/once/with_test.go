package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func TestWith(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		o, err := once.New(locks, once.Acquire(core.TTL(10*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		call := once.Call{Name: "mail", Key: "42"}
		begun := make(chan struct{})
		slow := func(context.Context) (once.Answer, error) {
			close(begun)
			time.Sleep(time.Minute)
			return once.Answer{Value: []byte("sent")}, nil
		}
		go func() {
			if _, err := o.Do(t.Context(), call, slow); err != nil {
				t.Error(err)
			}
		}()
		<-begun
		never := func(context.Context) (once.Answer, error) {
			t.Error("fn ran twice")
			return once.Answer{}, nil
		}
		if _, err := o.Do(t.Context(), call, never); !errors.Is(err, once.ErrInProgress) {
			t.Errorf("o itself waits: %v", err)
		}
		if _, err := o.With(core.Wait(-1)).Do(t.Context(), call, never); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		out, err := o.With(core.Wait(time.Hour)).Do(t.Context(), call, never)
		if err != nil || string(out.Value) != "sent" || !out.Replayed {
			t.Errorf("got %+v, %v; want the other's answer", out, err)
		}
		l, opts := o.Terms()
		if ttl, _, err := l.Limits(opts...); l != locks || ttl != 10*time.Second || err != nil {
			t.Errorf("the terms say TTL %v, %v", ttl, err)
		}
	})
}
