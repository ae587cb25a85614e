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
	// hazard 7. The store does not send the acquire again. The same claim gets the same
	// grant.
	{"lost acquire reply", 10, func(t *testing.T, r *rig) {
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
	// hazard 8. The outcome is unknown, and the key is free.
	{"lost acquire", 10, func(t *testing.T, r *rig) {
		c := claimed()
		f := r.proxy.Inject(testserver.Statement(taking, sql(c.Lease)), testserver.CloseRequest)
		_, err := r.store.Acquire(t.Context(), c)
		unknown(t, "acquire", err)
		f.Await(t)
		held(t, r.direct, c, false)
	}},
	// hazard 8. The acquire returns after two seconds, and its claim can be released.
	{"missing acquire reply", 2, func(t *testing.T, r *rig) {
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
	// hazard 9
	{"acquire overtaken by its release", 3, func(t *testing.T, r *rig) {
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
	// hazard 11. The caller releases again, which returns ErrLost.
	{"lost release reply", 10, func(t *testing.T, r *rig) {
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Statement(giving, sql(c.Lease)), testserver.CloseReply)
		again := func() error { return unlocked(func() error { return r.store.Release(t.Context(), c) }) }
		unknown(t, "release", again())
		f.Await(t)
		wantIs(t, "release", again(), store.ErrLost)
		held(t, r.direct, c, false)
	}},
	// hazard 13
	{"late release", 3, func(t *testing.T, r *rig) {
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
	// hazards 14 and 16
	{"late extend", 3, func(t *testing.T, r *rig) {
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
	// hazard 15
	{"late shorter extend", 3, func(t *testing.T, r *rig) {
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
	// hazard 10
	{"lost extend reply", 5, func(t *testing.T, r *rig) {
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
	// hazard 8. A run whose begin was not confirmed is undone, and an answer is saved
	// once.
	{"lost replies of a run", 5, func(t *testing.T, r *rig) {
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
	{"time over before a connection", 1, func(t *testing.T, r *rig) {
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
