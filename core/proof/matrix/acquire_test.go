package matrix_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// cancelled returns a context for an acquire. If the release must overtake the message,
// the context is canceled when the fault has hit the message.
func (r *rig) cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	r.t.Cleanup(cancel)
	if r.fault.when == overtaken {
		for _, f := range r.armed {
			go func() {
				select {
				case <-f.Fired():
					cancel()
				case <-ctx.Done():
				}
			}()
		}
	}
	return ctx
}

// gaveUp waits until the clean-up has released the claim of the caller that gave up, and
// then delivers the late message. err is that caller's error.
func (r *rig) gaveUp(err error) {
	r.t.Helper()
	if !errors.Is(err, context.Canceled) {
		r.t.Errorf("the caller got %v, want its context's end too", err)
	}
	r.eventually("the clean-up overtakes", func() bool { return r.with("d:") == 1 })
	r.deliver()
	r.wantHolds(r.cell.holds)
}

func acquireOp(r *rig) {
	r.arm("acquire", 0)
	began := time.Now()
	lease, err := r.locker.Acquire(r.cancelled(context.Background()), r.key, core.TTL(ttl))
	if !r.reported(err, began, 0) {
		return
	}
	if err != nil {
		r.gaveUp(err)
		r.finish(true)
		return
	}
	r.wantToken(lease, 1)
	r.wantHolds(r.cell.holds)
	r.wantBusy()
	if r.fault.when == within {
		r.unmoved()
	}
	if r.fault.when == beyond {
		r.outlast()
	}
	r.release(lease)
	if r.fault.when == beyond {
		r.eventually("the release is remembered", func() bool { return r.with("d:") == 1 })
		r.unmoved()
	}
	r.wantHolds(0)
	r.finish(true)
}

func reenterOp(r *rig) {
	outer := r.acquire(context.Background(), r.locker)
	r.arm("acquire", 0)
	began := time.Now()
	inner, err := r.locker.Acquire(r.cancelled(outer.Context()), r.key, core.TTL(ttl))
	if !r.reported(err, began, 1) {
		r.release(outer)
		return
	}
	if err != nil {
		r.gaveUp(err)
	} else {
		r.wantToken(inner, 1)
		r.wantHolds(r.cell.holds)
		if r.fault.when == within {
			r.unmoved()
		}
		if r.fault.when == beyond {
			r.outlast()
		}
		r.release(inner)
		if r.fault.when == beyond {
			r.eventually("the release is remembered", func() bool { return r.with("d:") == 1 })
			r.unmoved()
		}
	}
	r.wantHolds(1)
	r.wantBusy()
	r.release(outer)
	r.wantHolds(0)
	r.finish(true)
}

// waitOp waits for a key that the rival holds.
func waitOp(r *rig) {
	holder := r.acquire(context.Background(), r.rival)
	// The first request, a SET and a script, is answered with busy. The second request is
	// sent with an open watch, and then the caller waits.
	first := 2
	if r.place.redisson { // a script only
		first = 1
	}
	r.cell.sent += first - 2
	r.arm("acquire", first)
	var lease *core.Lease
	got, began := make(chan error, 1), time.Now()
	go func() {
		l, err := r.locker.Acquire(context.Background(), r.key, core.TTL(ttl), core.Wait(patience))
		lease = l
		got <- err
	}()
	r.fired()
	if r.fault.when == within {
		r.eventually("it asks again", func() bool { return r.sent() > first+1 })
		r.waits()
		r.deliver()
	}
	if r.fault.name == "duplicated" {
		r.deliver()
		if n := r.places(); n != 1 && !r.place.redisson {
			r.t.Errorf("one claim has %d places", n)
		}
	}
	r.release(holder)
	if r.fault.when == overtaken {
		r.deliver()
	}
	if !r.reported(<-got, began, 0) {
		return
	}
	r.wantToken(lease, 2)
	r.wantHolds(r.cell.holds)
	if r.fault.when == beyond {
		r.outlast()
	}
	r.release(lease)
	if r.fault.when == beyond {
		r.eventually("the release is remembered", func() bool { return r.with("d:") == 1 })
		r.unmoved()
	}
	r.wantHolds(0)
	r.finish(true)
}
