package adapters_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// resource is what the handlers work on, one for each order. It knows by itself
// which run began when, and takes no write with an older token than it has seen.
type resource struct {
	mu      sync.Mutex
	runs    []*run
	highest uint64
	last    int // the run that wrote last
	effects int // writes that were taken
	refused int
	// What must not be, and what a store that forgets cannot prevent.
	overlaps, together, stale, back int
}

// run is one call of the handler.
type run struct {
	n       int // counted from 1
	service string
	ctx     context.Context
	lease   *core.Lease
	token   uint64
	attempt int // 0 without Idempotent
	over    bool
	cause   error // of the end of ctx, as the handler saw it
}

// text is the answer of a run. It tells no secret.
func (r *run) text() string { return fmt.Sprintf("run %d", r.n) }

// ended waits for the end of the handler's context.
func (r *run) ended() {
	select {
	case <-r.ctx.Done():
	case <-time.After(patience):
	}
}

var errNoLease = errors.New("the handler has no lease")

// begin enters a call of the handler. Two at once are an overlap, unless forgets
// says that the store has lost what it granted.
func (x *resource) begin(ctx context.Context, service string, forgets bool) (*run, error) {
	lease, ok := core.LeaseFromContext(ctx)
	if !ok {
		return nil, errNoLease
	}
	r := &run{service: service, ctx: ctx, lease: lease, token: lease.Token()}
	r.attempt, _ = once.AttemptFromContext(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, other := range x.runs {
		switch {
		case other.over:
		case forgets:
			x.together++
		default:
			x.overlaps++
		}
		if r.token <= other.token {
			x.back++
		}
	}
	x.runs = append(x.runs, r)
	r.n = len(x.runs)
	return r, nil
}

// end notes that a handler returns or panics.
func (x *resource) end(r *run) {
	cause := context.Cause(r.ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	r.over, r.cause = true, cause
}

// write is the effect of a run. It tells whether it took place.
func (x *resource) write(r *run) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.token < x.highest {
		x.refused++
		return false
	}
	if r.n < x.last {
		x.stale++ // taken, although a later run has written
	}
	x.highest, x.last = r.token, r.n
	x.effects++
	return true
}

// seen is how many runs and effects there were, and how many writes were refused.
func (x *resource) seen() (runs, effects, refused int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.runs), x.effects, x.refused
}

// all are the runs.
func (x *resource) all() []run {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]run, len(x.runs))
	for i, r := range x.runs {
		all[i] = *r
	}
	return all
}
