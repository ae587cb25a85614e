package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// flight is a group of calls that the client sends together, and the commands behind
// them.
type flight struct {
	calls []*Call
	cmds  []redis.Cmder // what was sent
	own   bool          // the client is a *redis.Client
	pipe  redis.Pipeliner
	clock *redis.TimeCmd
	wait  *redis.Cmd
	err   error // the client's error
}

// carry sends calls together, and sets the outcome of each.
func (f *flight) carry(ctx context.Context, s *sender, calls []*Call) {
	f.fly(ctx, s, calls)
	f.land()
}

// fly sends calls together, and returns when the client has returned. A flight can be
// used again after land.
func (f *flight) fly(ctx context.Context, s *sender, calls []*Call) {
	*f = flight{calls: f.calls[:0], cmds: f.cmds[:0], own: s.own, pipe: f.pipe}
	for _, c := range calls {
		if c.payload.board(len(calls) == 1) {
			f.calls = append(f.calls, c)
		}
	}
	if len(f.calls) > 0 {
		f.send(ctx, s.client, f.commands(ctx))
	}
	if f.failed() != nil {
		// The client may have left commands in pipe, and use cmds.
		f.pipe, f.cmds = nil, nil
	}
}

// land sets the outcome of each call, from the last call to the first. So a caller that
// waits for all calls in their order wakes only once. A call must not be used after land.
func (f *flight) land() {
	clean := f.own && f.failed() == nil
	for _, c := range slices.Backward(f.calls) {
		c.clean = clean && !c.copied.Load()
		c.finish(f.outcome(c))
	}
	clear(f.calls)
	clear(f.cmds)
	f.clock, f.wait = nil, nil
}

// flightContext is the context of a flight. It has the values of the first call's
// context. It is done when the client has returned, when the only caller has left, and
// soon after its deadline, at the next check. A context of the standard library would
// start a timer for each flight. Do not use context.Cause: it can return the cause of
// the first call's context.
type flightContext struct {
	context.Context
	until time.Time
	done  chan struct{}
	err   error // set before done is closed
}

// newFlightContext returns the context of calls that are sent together. Its deadline is
// until, or the deadline of the only caller if that is earlier. newFlightContext calls
// no method of a caller's context. Such a method could panic or block, and the sender's
// mutex is held.
func newFlightContext(calls []*Call, until time.Time) *flightContext {
	if end := calls[0].deadline; len(calls) == 1 && !end.IsZero() && end.Before(until) {
		until = end
	}
	return &flightContext{Context: calls[0].ctx, until: until, done: make(chan struct{})}
}

// Deadline implements context.Context.
func (f *flightContext) Deadline() (time.Time, bool) { return f.until, true }

// Done implements context.Context.
func (f *flightContext) Done() <-chan struct{} { return f.done }

// Err implements context.Context.
func (f *flightContext) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// end ends the context with err, unless it has an error. The sender's mutex is held.
func (f *flightContext) end(err error) {
	if f.err == nil {
		f.err = err
		close(f.done)
	}
}

// commands returns the commands to send: the calls, a TIME if a call is Timed, and a
// WAIT if the only call has one. The WAIT lasts for at least a millisecond, and otherwise
// for at most the limit of its call and until the deadline of ctx.
func (f *flight) commands(ctx context.Context) []redis.Cmder {
	cmds := slices.Grow(f.cmds, len(f.calls)+2)
	for _, c := range f.calls {
		if c.asking {
			cmds = append(cmds, single{redis.NewCmd(ctx, "asking")})
		}
		c.Cmd = *redis.NewCmd(ctx, c.words...)
		cmds = append(cmds, c)
		if c.timed && f.clock == nil {
			f.clock = redis.NewTimeCmd(ctx, timeWords...)
		}
	}
	if f.clock != nil {
		cmds = append(cmds, f.clock)
	}
	if c := f.calls[0]; len(f.calls) == 1 && c.waitLimit > 0 {
		limit := c.waitLimit
		if end, ok := ctx.Deadline(); ok {
			limit = min(limit, time.Until(end))
		}
		// A WAIT of 0 would wait forever.
		f.wait = redis.NewCmd(ctx, "wait", c.replicas, max(limit.Milliseconds(), 1))
		cmds = append(cmds, single{f.wait})
	}
	f.cmds = cmds
	return cmds
}

func (f *flight) send(ctx context.Context, client redis.UniversalClient, cmds []redis.Cmder) {
	defer func() {
		if r := recover(); r != nil {
			f.err = fmt.Errorf("panic in the client: %v", r)
		}
	}()
	if len(cmds) == 1 {
		f.err = client.Process(ctx, cmds[0])
	} else {
		if f.pipe == nil {
			f.pipe = client.Pipeline()
		}
		_ = f.pipe.BatchProcess(ctx, cmds...)
		_, f.err = f.pipe.Exec(ctx)
	}
	if f.failed() != nil {
		return
	}
	reply := f.err
	for _, c := range f.calls {
		if c.Cmd.Val() != nil || c.Cmd.Err() != nil {
			continue
		}
		f.err = errNoReply
		if reply == nil {
			return // a hook has given up, and may still write the other calls
		}
		if c.payload.end() { // the reply is the server's reply to connecting
			c.SetErr(reply)
		}
	}
}

// failed returns the error that ended the flight, or nil if the client has completed
// the flight. After a failure, a hook may have left the flight running. Then fields
// without a mutex must not be read.
func (f *flight) failed() error {
	if isReply(f.err) {
		return nil
	}
	return f.err
}

func (f *flight) outcome(c *Call) (got Replicated, err error) {
	failed := f.failed()
	if failed == nil {
		got.Reply, err = c.Cmd.Result()
	} else {
		got.Reply, err = c.result(failed)
	}
	if err == redis.Nil {
		err = nil
	}
	if err != nil {
		return Replicated{}, err
	}
	if c.timed && got.Reply == "OK" {
		got.Reply, err = f.timeOf(failed)
	}
	if got.Err = failed; f.wait != nil && failed == nil {
		got.Replicas, got.Err = f.wait.Int64()
	}
	return got, err
}

func (f *flight) timeOf(failed error) (any, error) {
	if failed != nil {
		return nil, &NoTimeError{failed}
	}
	at, err := f.clock.Result()
	if err == nil && at.UnixMicro() <= 0 {
		err = errNoReply
	}
	if err != nil {
		return nil, &NoTimeError{err}
	}
	return at.UnixMicro(), nil
}

// timeWords is shared by all TIMEs, which saves an allocation for each.
var timeWords = []any{"time"}

// NoTimeError is the error of a Timed call that was done, but without a known time of
// the server.
type NoTimeError struct{ cause error }

func (e *NoTimeError) Error() string {
	return "done, but the server's time is not known: " + e.cause.Error()
}

// Unwrap returns the error of the TIME, except an error reply. An error reply would
// look like a reply to the call.
func (e *NoTimeError) Unwrap() error {
	if e.Refused() {
		return nil
	}
	return e.cause
}

// Refused reports whether the server answered the TIME with an error.
func (e *NoTimeError) Refused() bool {
	reply := errors.As(e.cause, new(redis.Error))
	return reply
}
