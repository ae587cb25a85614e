// Package outage makes the calls to a server that is down fail at once, instead of
// after their own time-outs. It does not depend on the kind of server.
package outage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
)

const (
	// patience is the maximum time that Enter waits for the probe. If the server
	// answers within this time, the waiting callers succeed.
	patience = 100 * time.Millisecond
	// pace is the minimum time between the end of a probe and the start of the next
	// probe.
	pace = 20 * time.Millisecond
	// probePause is the minimum time between two probes while the gate is open. A
	// caller that leaves without an answer starts a probe, and callers may leave all
	// the time.
	probePause = time.Second
	// probeGrace is the maximum time that a caller whose deadline has passed waits for
	// the probe's error. A refused connection returns its error much earlier.
	probeGrace = 10 * time.Millisecond
)

// Gate is open or closed, depending on the outcomes of the calls to one server. The
// first call or probe that could not reach the server closes the gate, and any answer
// opens it. While the gate is closed, one probe at a time tests the server, on behalf
// of all callers that want to enter. A Gate is safe for concurrent use. Its zero value
// is open, and stays open until Watch.
type Gate struct {
	answers atomic.Uint64         // the number of answers so far; it wraps around
	why     atomic.Pointer[error] // the error of the connection; nil while the gate is open

	mu    sync.Mutex
	probe func(ctx context.Context) error // nil before Watch and after Close
	limit time.Duration
	done  chan struct{}      // closed at the end of the probe in progress; nil if there is no probe
	last  time.Time          // the end of the last probe
	stop  context.CancelFunc // stops the probe

	probes sync.WaitGroup
}

// Watch makes the gate close while the server is down. probe sends the server a request
// that changes nothing. The ctx of probe is done after limit, and probe must then
// return soon.
func (g *Gate) Watch(limit time.Duration, probe func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.probe = limit, probe
}

// Mark identifies the moment at which a call began by the number of answers before that
// moment.
type Mark uint64

// Begin returns the mark for a call that begins now.
func (g *Gate) Begin() Mark { return Mark(g.answers.Load()) }

// Answered records that the server has answered, whatever the answer. This opens the
// gate.
func (g *Gate) Answered() {
	g.answers.Add(1)
	if g.Why() != nil {
		g.open()
	}
}

func (g *Gate) open() {
	g.why.Store(nil)
}

// Failed records that a call could not reach the server. It closes the gate, unless the
// server has answered since the call began.
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
		err = errors.New(err.Error()) // the callers that get this error have other contexts
	}
	g.why.Store(&err)
	if g.Begin() != begun { // Answered may have read why before it was stored
		g.open()
	}
}

// Doubt records that a call got no answer. The caller may have had little time, or its
// connection may be lost. So a missing answer only starts a probe. Doubt returns the
// result of Why. If the gate is open and the deadline of ctx has passed, Doubt first
// waits for the end of a probe in progress, for at most 10 ms.
func (g *Gate) Doubt(ctx context.Context, begun Mark) error {
	g.mu.Lock()
	if g.Begin() == begun && (g.Why() != nil || time.Since(g.last) >= probePause) {
		g.ask()
	}
	done := g.done
	g.mu.Unlock()
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) && done != nil && g.Why() == nil {
		select {
		case <-done:
		case <-time.After(probeGrace):
		}
	}
	return g.Why()
}

// Why returns the error of the connection, or nil while the gate is open.
func (g *Gate) Why() error {
	if why := g.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Enter returns nil while the gate is open. Otherwise Enter waits for at most 100 ms
// for the probe in progress, or for a new probe. If the gate is still closed then,
// Enter returns an error for which Known returns true. If ctx is done, the error also
// matches the cause of ctx.
func (g *Gate) Enter(ctx context.Context) error {
	if g.Why() == nil {
		return nil
	}
	g.mu.Lock()
	if g.Why() == nil {
		g.mu.Unlock()
		return nil
	}
	g.ask()
	done := g.done
	g.mu.Unlock()
	select {
	case <-done:
	case <-time.After(patience):
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

// ask starts a probe, unless one is in progress.
func (g *Gate) ask() {
	if g.done != nil || g.probe == nil {
		return
	}
	done := make(chan struct{})
	g.done = done
	wait := max(time.Until(g.last.Add(pace)), 0)
	ctx, cancel := context.WithTimeoutCause(context.Background(), wait+g.limit, fmt.Errorf("no answer within %s", words.Duration(g.limit)))
	g.stop = cancel
	probe := g.probe
	g.probes.Go(func() {
		defer close(done)
		defer cancel()
		time.Sleep(wait)
		begun, err := g.Begin(), errors.New("the client exited the goroutine that asked")
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
}

func (g *Gate) verdict(begun Mark, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.Answered()
	} else {
		g.fail(begun, err)
	}
	g.done, g.last = nil, time.Now()
}

// Close opens the gate permanently, cancels the probe in progress and waits for its
// end.
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
