package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// callLimit bounds a call whose context has no deadline.
const callLimit = 2 * time.Second

var errNoAnswer = fmt.Errorf("no answer within %v", callLimit)

// A flight is what one call has on its way to the server.
type flight struct{ state atomic.Int32 }

const (
	waiting  int32 = iota // nothing is on its way
	sent                  // something may have reached the server
	left                  // the caller went, nothing has been or will be written
	leftSent              // the caller went after something was sent, no more will be
)

var errLeft = errors.New("the caller has gone")

// leave says that the caller goes.
func (f *flight) leave() {
	for !f.state.CompareAndSwap(waiting, left) && !f.state.CompareAndSwap(sent, leftSent) {
		if s := f.state.Load(); s == left || s == leftSent {
			return
		}
	}
}

// again says that what was sent has been refused by the server, so that
// nothing is on its way. It is false if the caller has gone.
func (f *flight) again() bool { return f.state.CompareAndSwap(sent, waiting) }

// unsent tells that nothing has reached the server.
func (f *flight) unsent() bool {
	s := f.state.Load()
	return s == waiting || s == left
}

// verb is the name of a script in a command's arguments. go-redis asks for its
// bytes when it writes the command to a connection and not before: that is how
// a flight knows whether it has left.
type verb struct {
	flight *flight
	bytes  []byte
}

// MarshalBinary returns what is to be written, or an error that ends the
// command.
func (v *verb) MarshalBinary() ([]byte, error) {
	if !v.flight.state.CompareAndSwap(waiting, sent) && v.flight.state.Load() != sent {
		return nil, errLeft
	}
	return v.bytes, nil
}

// String is what logs show.
func (v *verb) String() string { return "script" }

// command is a call of a script that go-redis sends once, alone or in a
// pipeline. Sending it again is the Locker's decision.
type command struct {
	*redis.Cmd
	verb   verb
	script *script
	key    string
	args   []any
	answer atomic.Pointer[any] // set when the reply has been read
	first  *command            // whose answer this is, if it was sent before
}

// newCommand calls a script on one key by its name.
func newCommand(ctx context.Context, f *flight, s *script, key string, args []any) *command {
	c := &command{verb: verb{flight: f, bytes: s.sha}, script: s, key: key, args: args}
	c.Cmd = redis.NewCmd(ctx, c.line("evalsha")...)
	return c
}

// whole is the same call with the text of the script, for a server that does
// not know it.
func (c *command) whole(ctx context.Context) *command {
	w := &command{verb: verb{flight: c.verb.flight, bytes: c.script.source}, script: c.script, key: c.key, args: c.args, first: c}
	w.Cmd = redis.NewCmd(ctx, w.line("eval")...)
	return w
}

func (c *command) line(name string) []any {
	all := make([]any, 0, 5+len(c.args))
	return append(append(all, name, &c.verb, "1", c.key, c.script.name), c.args...)
}

// NoRetry implements redis.Cmder.
func (c *command) NoRetry() bool { return true }

// SetErr implements redis.Cmder. In a pipeline it is called as soon as the
// reply of this command has been read, and again with the error that ended the
// pipeline: the answer is kept for a caller that leaves before the end.
func (c *command) SetErr(err error) {
	c.Cmd.SetErr(err)
	if v := c.Cmd.Val(); err == nil && v != nil {
		if c.first != nil {
			c = c.first
		}
		c.answer.CompareAndSwap(nil, &v)
	}
}

// Clone implements redis.Cmder.
func (c *command) Clone() redis.Cmder {
	return &command{Cmd: c.Cmd.Clone().(*redis.Cmd), first: c}
}

// reply returns what the server answered to c, or to c as a whole.
func (c *command) reply(last *command) (any, error) {
	if v := c.answer.Load(); v != nil {
		return *v, nil
	}
	return last.Cmd.Result()
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
}

// leave runs work where the caller can leave it when ctx ends. The client
// itself may not: by default go-redis does not apply a context's deadline to a
// socket, and never its cancellation. What work returns after that is dropped.
func leave[T any](ctx context.Context, f *flight, work func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		f.leave()
		return none, context.Cause(ctx)
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic in the client: %v", r)
			}
			done <- o
		}()
		o.value, o.err = work()
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	f.leave()
	select {
	case o := <-done:
		return o.value, o.err
	default:
		return none, context.Cause(ctx)
	}
}

// call runs a script and returns its answer, an array that begins with a word.
func (s *Store) call(ctx context.Context, op string, sc *script, key string, args ...any) ([]any, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	f := &flight{}
	v, err := leave(ctx, f, func() (any, error) {
		c := newCommand(ctx, f, sc, key, args)
		last := c
		if err := s.client.Process(ctx, c); isReply(err, "NOSCRIPT") && f.again() {
			last = c.whole(ctx)
			_ = s.client.Process(ctx, last)
		}
		return c.reply(last)
	})
	if err != nil {
		return nil, failure(ctx, op, f, err)
	}
	return parse(op, v)
}

// parse checks the shape of an answer.
func parse(op string, v any) ([]any, error) {
	if a, ok := v.([]any); ok && len(a) > 0 {
		if _, ok := a[0].(string); ok {
			return a, nil
		}
	}
	return nil, fmt.Errorf("redisstore: %s: answer of type %T cannot be read", op, v)
}

// failure gives err its class: it matches core.ErrUnavailable if the call
// certainly changed nothing.
func failure(ctx context.Context, op string, f *flight, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		// The socket has the same deadline and can be a moment ahead.
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	if f.unsent() || notSent(err) || refused(err) {
		return fmt.Errorf("redisstore: %s: %w: %w", op, core.ErrUnavailable, err)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: %w", op, err)
}
