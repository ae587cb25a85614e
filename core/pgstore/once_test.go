package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestOnce(t *testing.T) {
	t.Parallel()
	server := database(t)
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	newOnce := func(t *testing.T, url string, opts ...once.Option) *once.Once {
		t.Helper()
		o, err := once.New(newLocker(t, url), opts...)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	charge := func(key string) once.Call {
		return once.Call{Name: "charge", Scope: "tenant", Key: key, Fingerprint: []byte("10 EUR")}
	}
	work := func(n *int, answer string) func(context.Context) (once.Answer, error) {
		return func(context.Context) (once.Answer, error) {
			*n++
			return once.Answer{Value: []byte(answer)}, nil
		}
	}

	// A run takes four round trips, and a replay takes one.
	t.Run("round trips", func(t *testing.T) {
		o, other := newOnce(t, server.URLAt(proxy.Addr)), newOnce(t, server.URLAt(proxy.Addr))
		n := 0
		for i, key := range []string{"first", "second"} {
			proxy.Forget()
			out, err := o.Do(t.Context(), charge(key), work(&n, "receipt"))
			if err != nil || out.Replayed || out.Attempt != 1 || n != i+1 {
				t.Fatalf("got %+v, %v after %d runs", out, err, n)
			}
			out, err = other.Do(t.Context(), charge(key), work(&n, "again"))
			if err != nil || !out.Replayed || string(out.Value) != "receipt" || n != i+1 {
				t.Fatalf("got %+v, %v after %d runs", out, err, n)
			}
			if n := len(proxy.Statements("lockkit.")) - len(proxy.Statements(sweeping)); n != 5 {
				t.Errorf("a run and a replay are %d calls, want 5: %q", n, proxy.Statements())
			}
		}
	})

	t.Run("another payload", func(t *testing.T) {
		o := newOnce(t, server.URL())
		n := 0
		if _, err := o.Do(t.Context(), charge("mismatch"), work(&n, "receipt")); err != nil {
			t.Fatal(err)
		}
		c := charge("mismatch")
		c.Fingerprint = []byte("1000 EUR")
		if _, err := o.Do(t.Context(), c, work(&n, "again")); !errors.Is(err, once.ErrMismatch) || n != 1 {
			t.Errorf("got %v after %d runs", err, n)
		}
	})

	// After an interrupted run the next call runs as attempt 2. With AtMostOnce it does
	// not run.
	t.Run("interrupted run", func(t *testing.T) {
		for i, opts := range [][]once.Option{nil, {once.AtMostOnce()}} {
			key := fmt.Sprintf("crash %d", i)
			cut := testserver.NewPostgresProxy(t, server.Addr)
			// The Locker called dying stands for a process. It is cut off, as if the
			// process had died.
			dying, err := core.New(newStore(t, testclient.Postgres(t, server.URLAt(cut.Addr))))
			if err != nil {
				t.Fatal(err)
			}
			o, err := once.New(dying, append(opts, once.Acquire(core.TTL(2*time.Second), core.NoRenew()))...)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			ended := make(chan struct{})
			out := make(chan error, 1)
			begun := make(chan struct{})
			go func() {
				_, err := o.Do(t.Context(), charge(key), func(context.Context) (once.Answer, error) {
					cut.Partition()
					close(begun)
					<-ended
					return once.Answer{Value: []byte("stale")}, nil
				})
				out <- err
			}()
			select {
			case <-begun:
			case err := <-out:
				t.Fatalf("the run did not begin: %v", err)
			}
			next := newOnce(t, server.URL(), append(opts, once.Acquire(core.Wait(patience)))...)
			got, err := next.Do(t.Context(), charge(key), work(&n, "receipt"))
			switch {
			case opts == nil && (err != nil || got.Attempt != 2 || n != 1):
				t.Errorf("got %+v, %v after %d runs; want attempt 2", got, err, n)
			case opts != nil && (!errors.Is(err, once.ErrIndeterminate) || n != 0):
				t.Errorf("got %v after %d runs, want %v", err, n, once.ErrIndeterminate)
			}
			// The process was only slow, and must not save its answer now.
			cut.Heal()
			close(ended)
			if err := <-out; err == nil {
				t.Error("the stale run got the report that its answer is saved")
			}
			if opts == nil {
				if got, err = next.Do(t.Context(), charge(key), work(&n, "again")); err != nil || string(got.Value) != "receipt" {
					t.Errorf("got %+v, %v; want the answer of attempt 2", got, err)
				}
			}
			if err := dying.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})

	// Lost replies cause no further run or attempt, and lose no answer.
	t.Run("lost replies", func(t *testing.T) {
		o, other := newOnce(t, server.URLAt(proxy.Addr), once.AtMostOnce()), newOnce(t, server.URL(), once.AtMostOnce())
		for i := range 10 {
			for _, call := range []string{making, changing} {
				n, key := 0, fmt.Sprintf("%s lost %d", call, i)
				f := proxy.Inject(testserver.Statement(call), testserver.CloseReply)
				out, err := o.Do(t.Context(), charge(key), work(&n, "receipt"))
				if err != nil || out.Replayed || out.Attempt != 1 || n != 1 {
					t.Fatalf("%s: got %+v, %v after %d runs", key, out, err, n)
				}
				f.Await(t)
				out, err = other.Do(t.Context(), charge(key), work(&n, "again"))
				if err != nil || !out.Replayed || string(out.Value) != "receipt" || n != 1 {
					t.Errorf("%s: got %+v, %v after %d runs", key, out, err, n)
				}
			}
		}
	})
}
