// Package outage knows whether a server is down, so that callers are told at once and
// need no time-outs of their own to find out. It knows nothing of what the server is
// asked for.
package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// grace is how long Enter waits at the most for a probe that is under way, and
	// first how long if it has begun it: where a server is back, that one is to get in.
	grace = 40 * time.Millisecond
	first = 180 * time.Millisecond
	// pace is how long after a probe has ended the next one begins at the earliest.
	pace = grace / 2
	// calm is how long a probe that was answered puts off the next one while the gate is
	// open, since callers may leave all the time.
	calm = time.Second
	// hearsay is how long a caller whose time is over waits at the most to be told what
	// the connection says. A connection that is refused says so in much less.
	hearsay = 10 * time.Millisecond
)

// Gate is what is known of one server by the outcomes of its calls. A server is
// down from the first call or probe that could not reach it, until anything has been
// answered. While it is, one probe at a time asks it, on behalf of all that want to
// enter. A Gate is safe for concurrent use; its zero value is open, and stays so
// until Watch.
type Gate struct {
	answers atomic.Uint64         // so far; they wrap
	why     atomic.Pointer[error] // what the connection said; nil while it is not down

	mu      sync.Mutex
	probe   func(ctx context.Context) error // nil before Watch and after Close
	limit   time.Duration
	news    chan struct{} // closed at the end of a probe, or when something was answered; nil without waiters
	probing bool
	last    time.Time          // when the last probe ended
	stop    context.CancelFunc // of the probe

	probes sync.WaitGroup
}

// Watch has the gate close while the server is down. Probe asks the server anything
// that changes nothing, over a connection of its own; it returns soon after its ctx
// ends, which is after limit.
func (g *Gate) Watch(limit time.Duration, probe func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.probe = limit, probe
}

// Mark is the moment at which a call began.
type Mark uint64

// Begin returns the mark of a call that begins.
func (g *Gate) Begin() Mark { return Mark(g.answers.Load()) }

// Answered says that the server has answered, whatever it was. That opens the gate.
func (g *Gate) Answered() {
	g.answers.Add(1)
	if g.Why() != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open()
	}
}

func (g *Gate) open() {
	g.why.Store(nil)
	g.tell()
}

// tell wakes those that listen.
func (g *Gate) tell() {
	if g.news != nil {
		close(g.news)
		g.news = nil
	}
}

// Failed says that a call could not reach the server: it is down, unless something was
// answered since the call began.
func (g *Gate) Failed(begun Mark, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail(begun, err)
}

func (g *Gate) fail(begun Mark, err error) {
	if g.probe == nil || g.Begin() != begun {
		return
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = errors.New(err.Error()) // it is not the context of the callers that will be told
	}
	g.why.Store(&err)
	if g.Begin() != begun { // and the caller that answered may have looked before
		g.open()
	}
}

// Doubt says that a call had no answer. Its caller may have had little time, or its
// connection may have been idle for too long, or lost. So it is only a reason to probe.
// Doubt returns what Why does. If the time of ctx is over, it waits for the outcome of
// the probe first, for 10 ms at the most.
func (g *Gate) Doubt(ctx context.Context, begun Mark) error {
	g.mu.Lock()
	if g.Begin() == begun && (g.Why() != nil || time.Since(g.last) >= calm) {
		g.ask()
	}
	if end, ok := ctx.Deadline(); !g.probing || g.Why() != nil || !ok || time.Now().Before(end) {
		g.mu.Unlock()
		return g.Why()
	}
	news := g.listen()
	g.mu.Unlock()
	select {
	case <-news:
	case <-time.After(hearsay):
	}
	return g.Why()
}

// Why is what the connection said, or nil if the server is not down.
func (g *Gate) Why() error {
	if why := g.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Enter returns nil unless the server is down. If it is, Enter waits for the probe that
// is under way, for 40 ms at the most, or for 180 if it has begun the probe. Its error
// is Known, and matches the cause of ctx if that has ended.
func (g *Gate) Enter(ctx context.Context) error {
	if g.Why() == nil {
		return nil
	}
	g.mu.Lock()
	if g.Why() == nil {
		g.mu.Unlock()
		return nil
	}
	wait := grace
	if g.ask() {
		wait = first
	}
	news := g.listen()
	g.mu.Unlock()
	select {
	case <-news:
	case <-time.After(wait):
	case <-ctx.Done():
	}
	why := g.Why()
	switch {
	case why == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%w (%w)", &downError{why}, context.Cause(ctx))
	}
	return &downError{why}
}

// listen returns what is closed when there is something new to know.
func (g *Gate) listen() <-chan struct{} {
	if g.news == nil {
		g.news = make(chan struct{})
	}
	return g.news
}

// ask begins a probe, unless one is under way.
func (g *Gate) ask() bool {
	if g.probing || g.probe == nil {
		return false
	}
	g.probing = true
	wait := max(time.Until(g.last.Add(pace)), 0)
	ctx, cancel := context.WithTimeoutCause(context.Background(), wait+g.limit, fmt.Errorf("no answer within %v", g.limit))
	g.stop = cancel
	probe := g.probe
	g.probes.Go(func() {
		defer cancel()
		time.Sleep(wait)
		begun, err := g.Begin(), errors.New("the client has ended the goroutine that asked")
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic in the client: %v", r)
			}
			g.verdict(begun, err)
		}()
		if err = probe(ctx); err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = context.Cause(ctx)
		}
	})
	return true
}

// verdict ends a probe.
func (g *Gate) verdict(begun Mark, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing, g.last = false, time.Now()
	if err == nil {
		g.answers.Add(1)
		g.open()
		return
	}
	g.fail(begun, err)
	g.tell()
}

// Close opens the gate for good, and waits for the probe that is under way.
func (g *Gate) Close() {
	g.mu.Lock()
	g.probe = nil
	g.open()
	if g.stop != nil {
		g.stop()
	}
	g.mu.Unlock()
	g.probes.Wait()
}
