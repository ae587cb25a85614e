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

// resource is the data that the handlers change. Each order has its own resource. The
// resource records the start of each run, and refuses a write after a write with a
// higher token.
type resource struct {
	mu      sync.Mutex
	runs    []*run
	highest uint64
	last    int // number of the run that wrote last
	effects int // accepted writes
	refused int
	// overlaps, stale and back count violations. together counts overlaps after the store
	// has lost its data, which no store can prevent.
	overlaps, together, stale, back int
}

// run is one call of the handler.
type run struct {
	n       int // number, from 1
	service string
	ctx     context.Context
	lease   *core.Lease
	token   uint64
	attempt int // 0 without Idempotent
	over    bool
	cause   error // cause of ctx as the handler saw it
}

// text returns the response of a run. It contains no secret.
func (r *run) text() string { return fmt.Sprintf("run %d", r.n) }

func (r *run) ended() {
	select {
	case <-r.ctx.Done():
	case <-time.After(patience):
	}
}

var errNoLease = errors.New("the handler has no lease")

// begin records a call of the handler. Two concurrent calls are an overlap, unless
// forgets is true, which means that the store has lost its grants.
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

// end records that a handler returns or panics.
func (x *resource) end(r *run) {
	cause := context.Cause(r.ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	r.over, r.cause = true, cause
}

// write performs the effect of a run, which is a write to the resource. It reports
// whether the resource accepted the write.
func (x *resource) write(r *run) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.token < x.highest {
		x.refused++
		return false
	}
	if r.n < x.last {
		x.stale++ // accepted, although a later run has written
	}
	x.highest, x.last = r.token, r.n
	x.effects++
	return true
}

func (x *resource) seen() (runs, effects, refused int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.runs), x.effects, x.refused
}

func (x *resource) all() []run {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]run, len(x.runs))
	for i, r := range x.runs {
		all[i] = *r
	}
	return all
}
