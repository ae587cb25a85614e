package matrix_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func (r *rig) places() int {
	r.t.Helper()
	list := strings.TrimSpace(r.fields()["w"])
	if list == "" {
		return 0
	}
	return 1 + strings.Count(list, "\n")
}

// renewOp holds a key until the watchdog has extended it. If the extension is overtaken,
// renewOp releases the key before the extension arrives.
func renewOp(r *rig) {
	lease := r.acquire(context.Background(), r.locker)
	first := r.end()
	r.arm("extend", 0)
	r.fired()
	if r.fault.when == overtaken {
		r.release(lease)
		r.wantHolds(r.cell.holds)
		r.unmoved()
		r.finish(true)
		return
	}
	// If the first extension was not answered, the engine sends it again. A duplicated
	// extension is answered.
	r.eventually("the hold is extended", func() bool { return r.sent() >= r.cell.sent && r.end() > first })
	r.wantHolds(r.cell.holds)
	switch r.fault.when {
	case within:
		before := r.end()
		r.unmoved()
		if after := r.end(); after < before {
			r.t.Errorf("the late extension took %d ms away", before-after)
		}
	case beyond:
		r.outlast()
		r.release(lease)
		next := r.acquire(context.Background(), r.rival)
		r.wantToken(next, 2)
		r.unmoved()
		r.release(next)
		r.wantHolds(0)
		r.finish(false)
		return
	}
	r.wantBusy()
	r.release(lease)
	r.wantHolds(0)
	r.finish(true)
}

// leaveOp releases the inner one of two holds.
func leaveOp(r *rig) {
	outer := r.acquire(context.Background(), r.locker)
	inner := r.acquire(outer.Context(), r.locker)
	r.wantHolds(2)
	r.arm("release", 0)
	if r.fault.when == overtaken {
		done, began := make(chan error, 1), time.Now()
		go func() { done <- inner.Release(context.Background()) }()
		r.fired()
		leave(r.t, outer)
		r.reported(<-done, began, 0)
		next := r.acquire(context.Background(), r.rival)
		r.wantToken(next, r.cell.tokens)
		r.wantHolds(r.cell.holds)
		r.unmoved()
		r.release(next)
		r.finish(false)
		return
	}
	began := time.Now()
	r.reported(inner.Release(context.Background()), began, 1)
	r.wantHolds(r.cell.holds)
	r.wantBusy()
	switch r.fault.when {
	case beyond:
		r.outlast()
		r.unmoved()
	case within:
		r.unmoved()
	}
	r.wantBusy()
	if err := outer.Extend(context.Background(), ttl); err != nil {
		r.t.Errorf("the outer lease cannot be extended: %v", err)
	}
	r.release(outer)
	r.wantHolds(0)
	r.finish(true)
}

// releaseOp releases a key for which the rival waits.
func releaseOp(r *rig) {
	lease := r.acquire(context.Background(), r.locker)
	got := make(chan *core.Lease, 1)
	go func() {
		l, err := r.rival.Acquire(context.Background(), r.key, core.TTL(ttl), core.Wait(patience))
		if err != nil {
			r.t.Errorf("the waiter got %v", err)
		}
		got <- l
	}()
	r.waits()
	r.arm("release", 0)
	began := time.Now()
	r.reported(lease.Release(context.Background()), began, 1)
	next := <-got
	if next == nil {
		return
	}
	r.wantToken(next, 2)
	if r.fault.when == overtaken {
		r.release(next)
		next = r.acquire(context.Background(), r.rival)
	}
	r.wantToken(next, r.cell.tokens)
	r.wantHolds(r.cell.holds)
	if r.fault.when == beyond {
		r.outlast()
	}
	if r.fault.when != inTime {
		r.unmoved()
	}
	if err := next.Extend(context.Background(), ttl); err != nil {
		r.t.Errorf("the next lease cannot be extended: %v", err)
	}
	r.release(next)
	r.wantHolds(0)
	r.finish(false)
}

func recordOp(r *rig) {
	ctx := context.Background()
	begin := store.Record{Value: []byte("begun"), Retain: time.Hour}
	lease, _, err := r.locker.Begin(ctx, r.key, begin, core.TTL(ttl))
	if err != nil {
		r.t.Fatalf("begin: %v", err)
	}
	r.wantToken(lease, 1)
	open := r.fault.when == overtaken
	r.arm("release", 0)
	began := time.Now()
	r.reported(lease.Finish(ctx, store.Record{Value: []byte("the answer"), Attempt: 1, Done: !open, Retain: time.Hour}), began, 0)
	r.wantHolds(r.cell.holds)
	if r.fault.when == beyond {
		r.outlast()
	}
	if open {
		next, found, err := r.rival.Begin(ctx, r.key, begin, core.TTL(ttl))
		if err != nil {
			r.t.Fatalf("begin: %v", err)
		}
		if found.Attempt != 2 || string(found.Value) != "the answer" {
			r.t.Errorf("the next run finds attempt %d and value %q", found.Attempt, found.Value)
		}
		r.wantToken(next, r.cell.tokens)
		r.unmoved()
		if err := next.Finish(ctx, store.Record{Value: []byte("another"), Attempt: 2, Done: true, Retain: time.Hour}); err != nil {
			r.t.Errorf("finish: %v", err)
		}
		r.wantHolds(0)
		r.finish(false)
		return
	}
	if r.fault.when != inTime {
		r.unmoved()
	}
	again, found, err := r.rival.Begin(ctx, r.key, begin, core.TTL(ttl))
	if err != nil || again != nil || !found.Done || found.Attempt != 1 || string(found.Value) != "the answer" {
		r.t.Errorf("the next caller gets %v, attempt %d, %q and error %v; want the answer", again != nil, found.Attempt, found.Value, err)
	}
	if token := r.fields()["t"]; token != fmt.Sprint(r.last+r.cell.tokens*store.TokenStep) {
		r.t.Errorf("the last token is %s after %d, want %d grants more", token, r.last, r.cell.tokens)
	}
	r.finish(false)
}
