package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestFaults loses and delays requests and replies.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := database(t)
	r := newRig(t, server)
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			for range c.trials {
				c.run(t, r)
			}
		})
	}
}

var faultCases = []struct {
	name   string
	trials int
	run    func(t *testing.T, r *rig)
}{
	{"an acquire whose reply is lost with the connection is not sent again, and asking again is the same grant (hazard 7)", 10, func(t *testing.T, r *rig) {
		c := claimed()
		f := r.proxy.Inject(testserver.Statement(taking, sql(c.Lease)), testserver.CloseReply)
		_, err := r.store.Acquire(t.Context(), c)
		unknown(t, "acquire", err)
		f.Await(t)
		if n := len(r.proxy.Statements(taking, sql(c.Lease))); n != 1 {
			t.Fatalf("sent %d times", n)
		}
		held(t, r.direct, c, true)
		g := acquire(t, r.store, c)
		if again := acquire(t, r.direct, c); again.Token != g.Token {
			t.Errorf("got tokens %d and %d for one claim", g.Token, again.Token)
		}
		release(t, r.store, c)
		held(t, r.direct, c, false)
	}},
	{"an acquire that was lost on its way took nothing, and its outcome is unknown (hazard 8)", 10, func(t *testing.T, r *rig) {
		c := claimed()
		f := r.proxy.Inject(testserver.Statement(taking, sql(c.Lease)), testserver.CloseRequest)
		_, err := r.store.Acquire(t.Context(), c)
		unknown(t, "acquire", err)
		f.Await(t)
		held(t, r.direct, c, false)
	}},
	{"an acquire without an answer ends after two seconds, and can be given back (hazard 8)", 2, func(t *testing.T, r *rig) {
		c := claimed()
		f := r.proxy.Inject(testserver.Statement(taking, sql(c.Lease)), testserver.DropReply)
		start := time.Now()
		_, err := r.store.Acquire(t.Context(), c)
		if took := time.Since(start); took < time.Second || took > patience/2 {
			t.Errorf("it took %v", took)
		}
		unknown(t, "acquire", err)
		f.Await(t)
		release(t, r.store, c)
		held(t, r.direct, c, false)
	}},
	{"an acquire that its release has overtaken is refused (hazard 9)", 3, func(t *testing.T, r *rig) {
		c := claimed()
		f := r.proxy.Inject(testserver.Statement(taking, sql(c.Lease)), testserver.HoldRequest)
		err := leaving(t, f, func(ctx context.Context) error {
			_, err := r.store.Acquire(ctx, c)
			return err
		})
		unknown(t, "acquire", err)
		wantIs(t, "acquire", err, context.Canceled)
		wantIs(t, "release", r.store.Release(t.Context(), c), store.ErrLost)
		f.Deliver()
		f.AwaitAnswer(t)
		held(t, r.direct, c, false)
		wantIs(t, "acquire", second(r.store.Acquire(t.Context(), c)), store.ErrLost)
	}},
	{"a release whose reply is lost is sent again and lost by then (hazard 11)", 10, func(t *testing.T, r *rig) {
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Statement(giving, sql(c.Lease)), testserver.CloseReply)
		unknown(t, "release", r.store.Release(t.Context(), c))
		f.Await(t)
		wantIs(t, "release", r.store.Release(t.Context(), c), store.ErrLost)
		held(t, r.direct, c, false)
	}},
	{"a release that arrives late does not end the next one's hold (hazard 13)", 3, func(t *testing.T, r *rig) {
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Statement(giving, sql(c.Lease)), testserver.HoldRequest)
		unknown(t, "release", leaving(t, f, func(ctx context.Context) error { return r.store.Release(ctx, c) }))
		release(t, r.direct, c)
		next := exclusive(c.Key)
		g := acquire(t, r.direct, next)
		f.Deliver()
		f.AwaitAnswer(t)
		if again := acquire(t, r.direct, next); again.Token != g.Token {
			t.Errorf("the successor has token %d now, had %d", again.Token, g.Token)
		}
		held(t, r.direct, c, true)
	}},
	{"an extension that arrives after the release, or after the next grant, does nothing (hazards 14 and 16)", 3, func(t *testing.T, r *rig) {
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Statement(extending, sql(c.Lease)), testserver.HoldRequest)
		unknown(t, "extend", leaving(t, f, func(ctx context.Context) error { return r.store.Extend(ctx, []store.Claim{c})[0].Err }))
		release(t, r.direct, c)
		next := exclusive(c.Key)
		acquire(t, r.direct, next)
		f.Deliver()
		f.AwaitAnswer(t)
		wantIs(t, "extend", r.direct.Extend(t.Context(), []store.Claim{c})[0].Err, store.ErrLost)
		release(t, r.direct, next)
		held(t, r.direct, c, false)
	}},
	{"an extension that arrives late does not shorten (hazard 15)", 3, func(t *testing.T, r *rig) {
		c := claimed()
		acquire(t, r.store, c)
		brief := c
		brief.TTL = 50 * time.Millisecond
		f := r.proxy.Inject(testserver.Statement(extending, sql(c.Lease)), testserver.HoldRequest)
		unknown(t, "extend", leaving(t, f, func(ctx context.Context) error { return r.store.Extend(ctx, []store.Claim{brief})[0].Err }))
		f.Deliver()
		f.AwaitAnswer(t)
		time.Sleep(2 * brief.TTL) // a shortened hold would have expired
		held(t, r.direct, c, true)
	}},
	{"an extension whose reply is lost is unknown, for one and for many (hazard 10)", 5, func(t *testing.T, r *rig) {
		a, b := claimed(), claimed()
		acquire(t, r.store, a)
		acquire(t, r.store, b)
		for _, claims := range [][]store.Claim{{a}, {a, b}} {
			f := r.proxy.Inject(testserver.Statement(extending, sql(a.Lease)), testserver.CloseReply)
			for _, x := range r.store.Extend(t.Context(), claims) {
				unknown(t, "extend", x.Err)
			}
			f.Await(t)
			for _, x := range r.store.Extend(t.Context(), claims) {
				if x.Err != nil {
					t.Fatal(x.Err)
				}
			}
		}
	}},
	{"an answer whose reply is lost is saved once, and a run whose begin was not confirmed is taken back (hazard 8)", 5, func(t *testing.T, r *rig) {
		c := claimed()
		c.Record = &store.Record{Value: []byte("begun"), Retain: time.Minute}
		r.proxy.Inject(testserver.Statement(making, sql(c.Lease)), testserver.CloseReply)
		_, err := r.store.Acquire(t.Context(), c)
		unknown(t, "acquire", err)
		undone := c
		undone.Record, undone.Undo = nil, true
		release(t, r.store, undone)
		next := exclusive(c.Key)
		next.Record = c.Record
		if g := acquire(t, r.store, next); g.Record.Attempt != 1 {
			t.Errorf("attempt %d, want 1", g.Record.Attempt)
		}
		last := next
		last.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: time.Minute}
		r.proxy.Inject(testserver.Statement(changing, sql(next.Lease)), testserver.CloseReply)
		unknown(t, "release", r.store.Release(t.Context(), last))
		release(t, r.store, last)
		if g := acquire(t, r.direct, c); g.Record == nil || string(g.Record.Value) != "answer" {
			t.Errorf("got %+v, want the answer", g.Record)
		}
	}},
	{"a call that waits for a connection when its time is over has sent nothing", 1, func(t *testing.T, r *rig) {
		pool := testclient.Postgres(t, r.server.URLAt(r.proxy.Addr, "pool_max_conns=1", "default_query_exec_mode=exec"))
		s := newStore(t, pool)
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, gone)
		defer cancel()
		c := claimed()
		_, err = s.Acquire(ctx, c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		wantIs(t, "acquire", err, gone)
		_, err = s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		if n := len(r.proxy.Statements(sql(c.Lease))); n != 0 {
			t.Errorf("%d statements were sent", n)
		}
	}},
}

func second[T any](_ T, err error) error { return err }
