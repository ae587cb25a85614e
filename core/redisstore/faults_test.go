package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// trials is the number of runs of each case with a fault. Slow cases run less often.
const trials = 10

// TestFaults loses, delays and doubles requests and replies.
func TestFaults(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Cleanup(func() { everyKeyExpires(t, server) })
	for way, edit := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, server, edit)
			for _, c := range faultCases {
				t.Run(c.name, func(t *testing.T) {
					n := trials
					if c.slow {
						n = 3
					}
					for range n {
						c.run(t, r)
					}
				})
			}
		})
	}
}

var faultCases = []struct {
	name string
	slow bool // the case waits for time to pass
	run  func(t *testing.T, r *rig)
}{
	{"lost acquire reply", false, func(t *testing.T, r *rig) { // hazard 7
		c := claimed()
		r.proxy.Forget()
		f := r.proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Lease}, testserver.CloseReply)
		_, err := r.store.Acquire(t.Context(), c)
		unknown(t, "acquire", err)
		f.Await(t)
		sentOnce(t, r, "acquire", c)
		// The same step has acquired the key and set its expiry (hazard 25).
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left <= 0 {
			t.Errorf("the key lives for %v, want about %v", left, c.TTL)
		}
		// A repeated acquire returns the same grant.
		before := r.fields(t, c)
		if g := acquire(t, r.store, c); g.Token+near < last(before) || g.Token > last(before)+near {
			t.Errorf("the token is %d after asking again, was %d", g.Token, last(before))
		}
		release(t, r.store, c)
		if r.exists(t, c) {
			t.Error("the key is not free")
		}
	}},
	{"missing acquire reply", true, func(t *testing.T, r *rig) { // hazards 7 and 8
		c := claimed()
		r.proxy.Forget()
		f := r.proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Lease}, testserver.DropReply)
		err := within(t, time.Second, func(ctx context.Context) error {
			_, err := r.store.Acquire(ctx, c)
			return err
		})
		f.Await(t)
		unknown(t, "acquire", err)
		wantIs(t, "acquire", err, context.DeadlineExceeded)
		release(t, r.store, c)
		sentOnce(t, r, "acquire", c)
		if r.exists(t, c) {
			t.Error("the key is not free")
		}
	}},
	{"unsent acquire", false, func(t *testing.T, r *rig) {
		c := claimed()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no use"))
		_, err := r.store.Acquire(ctx, c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		wantIs(t, "acquire", err, context.Cause(ctx))
		if r.exists(t, c) {
			t.Error("the key is taken")
		}
	}},
	{"acquire overtaken by its release", false, func(t *testing.T, r *rig) { // hazard 9
		c := claimed()
		f := r.proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Lease}, testserver.HoldRequest)
		err := whenFired(t, f, 0, func(ctx context.Context) error {
			_, err := r.store.Acquire(ctx, c)
			return err
		})
		unknown(t, "acquire", err)
		f.Await(t)
		wantIs(t, "release", r.store.Release(t.Context(), c), store.ErrLost)
		f.Deliver()
		f.AwaitAnswer(t)
		if _, held := r.fields(t, c)["h:"+c.Lease]; held {
			t.Error("the late acquire was granted")
		}
		next := claimOf(c.Key)
		acquire(t, r.store, next)
		release(t, r.store, next)
	}},
	{"waiting acquire overtaken by release", false, func(t *testing.T, r *rig) { // hazard 9
		holder := claimed()
		c := claimOf(holder.Key)
		c.Wait = true
		acquire(t, r.direct, holder)
		_, err := r.store.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrBusy)
		f := r.proxy.Inject(testserver.Match{Script: "acquire", Arg: c.Lease}, testserver.HoldRequest)
		err = whenFired(t, f, 0, func(ctx context.Context) error {
			_, err := r.store.Acquire(ctx, c)
			return err
		})
		unknown(t, "acquire", err)
		release(t, r.store, c)
		release(t, r.direct, holder)
		f.Deliver()
		f.AwaitAnswer(t)
		if _, held := r.fields(t, c)["h:"+c.Lease]; held {
			t.Error("the late acquire was granted")
		}
	}},
	{"doubled acquire", false, func(t *testing.T, r *rig) { // hazard 12
		c := claimed()
		inner := nested(c)
		for _, h := range []store.Claim{c, inner} {
			r.proxy.Inject(testserver.Match{Script: "acquire", Arg: h.Lease}, testserver.DoubleRequest)
			acquire(t, r.store, h)
		}
		release(t, r.store, inner)
		if !r.exists(t, c) {
			t.Error("the key is free after one release of two")
		}
		release(t, r.store, c)
		if r.exists(t, c) {
			t.Error("the key is not free after two releases of two")
		}
	}},
	{"lost release reply", false, func(t *testing.T, r *rig) { // hazard 11
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, testserver.CloseReply)
		unknown(t, "release", hit(t, f, func() error { return r.store.Release(t.Context(), c) }))
		wantIs(t, "release", r.store.Release(t.Context(), c), store.ErrLost)
		acquire(t, r.store, claimOf(c.Key))
	}},
	{"late release", false, func(t *testing.T, r *rig) { // hazard 13
		c := claimed()
		c.Last = acquire(t, r.store, c).Token
		f := r.proxy.Inject(testserver.Match{Script: "release", Arg: c.Lease}, testserver.HoldRequest)
		err := whenFired(t, f, 0, func(ctx context.Context) error { return r.store.Release(ctx, c) })
		unknown(t, "release", err)
		f.Await(t)
		release(t, r.direct, c)
		next := claimOf(c.Key)
		acquire(t, r.direct, next)
		f.Deliver()
		f.AwaitAnswer(t)
		if err := extend(r.direct, next); err != nil {
			t.Errorf("the next hold: %v", err)
		}
	}},
	{"late extend", false, func(t *testing.T, r *rig) { // hazards 14 and 16
		c := claimed()
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Match{Script: "extend", Arg: c.Lease}, testserver.HoldRequest)
		var answer error
		_ = whenFired(t, f, 0, func(ctx context.Context) error {
			answer = r.store.Extend(ctx, []store.Claim{c})[0].Err
			return nil
		})
		unknown(t, "extend", answer)
		f.Await(t)
		release(t, r.direct, c)
		next := claimOf(c.Key)
		next.TTL = 20 * time.Second
		acquire(t, r.direct, next)
		before := r.fields(t, next)
		f.Deliver()
		f.AwaitAnswer(t)
		after := r.fields(t, next)
		if len(after) != len(before) || after["h:"+next.Lease] != before["h:"+next.Lease] {
			t.Errorf("the state is %v, was %v", after, before)
		}
		if left := r.asks.PTTL(t.Context(), stored(next)).Val(); left > next.TTL {
			t.Errorf("the key lives for %v, want at most %v", left, next.TTL)
		}
	}},
	{"late shorter extend", false, func(t *testing.T, r *rig) { // hazard 15
		c := claimed()
		acquire(t, r.store, c)
		short := c
		short.TTL = time.Second
		f := r.proxy.Inject(testserver.Match{Script: "extend", Arg: c.Lease}, testserver.HoldRequest)
		_ = whenFired(t, f, 0, func(ctx context.Context) error {
			return r.store.Extend(ctx, []store.Claim{short})[0].Err
		})
		f.Await(t)
		if err := extend(r.direct, c); err != nil {
			t.Fatal(err)
		}
		before := r.fields(t, c)
		f.Deliver()
		f.AwaitAnswer(t)
		if after := r.fields(t, c); after["h:"+c.Lease] != before["h:"+c.Lease] {
			t.Errorf("the hold is %q, was %q", after["h:"+c.Lease], before["h:"+c.Lease])
		}
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < c.TTL/2 {
			t.Errorf("the key lives for %v, want about %v", left, c.TTL)
		}
	}},
	{"lost extend reply", false, func(t *testing.T, r *rig) { // hazard 10
		c := claimed()
		c.TTL = 10 * time.Second
		acquire(t, r.store, c)
		longer := c
		longer.TTL = time.Minute
		f := r.proxy.Inject(testserver.Match{Script: "extend", Arg: c.Lease}, testserver.CloseReply)
		unknown(t, "extend", hit(t, f, func() error { return r.store.Extend(t.Context(), []store.Claim{longer})[0].Err }))
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left <= c.TTL {
			t.Errorf("the key lives for %v, want more than %v", left, c.TTL)
		}
	}},
	{"answers before a silent connection", true, func(t *testing.T, r *rig) {
		var batch []store.Claim
		for range 5 {
			c := claimed()
			batch = append(batch, c)
			acquire(t, r.store, c)
		}
		release(t, r.store, batch[1])
		f := r.proxy.Inject(testserver.Match{Script: "extend", Arg: batch[3].Lease}, testserver.DropReply)
		var answers []store.Extension
		_ = whenFired(t, f, 1500*time.Millisecond, func(ctx context.Context) error {
			answers = r.store.Extend(ctx, batch)
			return nil
		})
		f.Await(t)
		for i, want := range []error{nil, store.ErrLost, nil} {
			if !errors.Is(answers[i].Err, want) {
				t.Errorf("answer %d: got %v, want %v", i, answers[i].Err, want)
			}
		}
		for i := 3; i < 5; i++ {
			unknown(t, "extend", answers[i].Err)
		}
	}},
}

// hit repeats call until the fault has fired, and returns its last error. On a busy
// machine a call can return before its request is sent.
func hit(t testing.TB, f *testserver.Fault, call func() error) error {
	t.Helper()
	for {
		err := call()
		select {
		case <-f.Fired():
			return err
		default:
		}
		if !late(err) {
			f.Await(t)
			return err
		}
	}
}

// whenFired runs call with a context that is canceled some time after the fault has
// fired. It fails the test unless call then returns soon. The context's cause is the
// error of another call. call must not take that error for its own answer.
func whenFired(t testing.TB, f *testserver.Fault, later time.Duration, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	left := make(chan time.Time, 1)
	go func() {
		select {
		case <-f.Fired():
			time.Sleep(later)
		case <-ctx.Done():
			return
		}
		left <- time.Now()
		cancel(errors.Join(context.Canceled, store.ErrUnavailable, store.ErrLost))
	}()
	err := hit(t, f, func() error { return call(ctx) })
	select {
	case at := <-left:
		if took := time.Since(at); took > slack {
			t.Errorf("got a return %v after the context was done, want at most %v", took, slack)
		}
	default: // call was answered
	}
	return err
}

func sentOnce(t testing.TB, r *rig, script string, c store.Claim) {
	t.Helper()
	if n := r.proxy.Count(testserver.Match{Script: script, Arg: c.Lease}); n != 1 {
		t.Errorf("%s was sent %d times, want once", script, n)
	}
}
