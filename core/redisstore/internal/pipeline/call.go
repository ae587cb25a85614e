package pipeline

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one command for Redis, made by Eval or SetNX. It is given to Do, DoWait or DoAll,
// once, and goes out once: what is sent again is a Call of its own.
type Call struct {
	redis.Cmd
	script   *Script // nil for a SET
	key      string
	words    []any
	tracked  tracked
	length   int  // of its texts
	optional bool // it is refused while the server is down
	timed    bool // its reply is the server's time

	state state
	ctx   context.Context // the caller's
	until time.Time       // when it has taken too long
	done  chan struct{}   // receives when the reply is there, the client has returned, or c took too long

	mu    sync.Mutex
	value any   // the reply,
	got   bool  // if there is one
	err   error // of the call if there is none
	us    int64 // the server's time; 0 if it is not known,
	noUs  error // and why
}

var _ redis.Cmder = (*Call)(nil)

func newCall(of *Script, key []byte) *Call {
	return &Call{script: of, key: string(key), words: make([]any, 0, 8), done: make(chan struct{}, 1)}
}

// Optional makes c a call that is refused while its server is known to be down: one
// that changes nothing that has to be changed.
func (c *Call) Optional() *Call {
	c.optional = true
	return c
}

// Timed makes the reply "OK" to c, a SetNX, the server's time in us, at a moment after c was
// done (int64). It is NoTimeError if c was done and the time is not known.
func (c *Call) Timed() *Call {
	c.timed = true
	return c
}

// Text appends a text to the arguments.
func (c *Call) Text(s string) *Call {
	c.length += len(s)
	return c.Word(s)
}

// Num appends a number to the arguments.
func (c *Call) Num(v int64) *Call { return c.Word(v) }

// Word appends any other argument.
func (c *Call) Word(v any) *Call {
	c.words = append(c.words, v)
	return c
}

// ready makes c a command of the client, with ctx.
func (c *Call) ready(ctx context.Context) *Call {
	c.Cmd = *redis.NewCmd(ctx, c.words...)
	return c
}

// again returns a Call that does what c does, with the text of its script: the server may
// not know that.
func (c *Call) again() *Call {
	w := &Call{
		script: c.script, key: c.key, words: slices.Clone(c.words), length: c.length, optional: c.optional, timed: c.timed,
		done: make(chan struct{}, 1),
	}
	w.tracked = tracked{&w.state, c.tracked.bytes}
	if c.script == nil {
		w.words[2] = &w.tracked
		return w
	}
	w.tracked.bytes = c.script.source
	w.words[0], w.words[1] = "eval", &w.tracked
	return w
}

// NoRetry keeps the client from sending c again when the reply is lost.
func (c *Call) NoRetry() bool { return true }

// SetErr notes the reply, or why there is none. The client calls it when it has read the
// reply; that c is done is known at once then, and else when the client returns.
func (c *Call) SetErr(err error) {
	c.Cmd.SetErr(err)
	c.note(c.Cmd.Val(), err)
}

// Clone returns a copy for a hook, which is no Call.
func (c *Call) Clone() redis.Cmder { return single{c.Cmd.Clone().(*redis.Cmd)} }

// note notes a reply or an error. A reply stays: the client can report that a connection
// broke to calls that were answered before.
func (c *Call) note(v any, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.got:
	case err == redis.Nil || err == nil && v != nil:
		c.value, c.got = v, true
		c.notifyIfComplete()
	case err != nil:
		c.err = err
	}
}

// noteTime notes the server's time, in us, or why it is not known. It counts if c is done.
func (c *Call) noteTime(us int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaitsTime() {
		c.us, c.noUs = us, err
		c.notifyIfComplete()
	}
}

// awaitsTime reports whether all but the time of c is known. The caller holds the mutex.
func (c *Call) awaitsTime() bool { return c.timed && c.got && c.value == any("OK") && c.us == 0 }

func (c *Call) notifyIfComplete() {
	if !c.awaitsTime() {
		c.notify()
	}
}

// finish notes that the client has returned err from the command or pipeline of c.
func (c *Call) finish(err error) {
	if _, reply := errors.AsType[redis.Error](err); err == nil || reply {
		// The client is done with c, whether it called SetErr or not. The error can be the
		// reply to another call.
		v, own := c.Cmd.Result()
		c.note(v, own)
		err = errNoReply
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = cmp.Or(c.err, err)
	c.notify()
}

// expire wakes the caller of c, and returns true, if c has taken too long.
func (c *Call) expire(now time.Time) bool {
	late := now.After(c.until)
	if late {
		c.notify()
	}
	return late
}

// notify wakes the caller of c.
func (c *Call) notify() {
	select {
	case c.done <- struct{}{}:
	default:
	}
}

// errNoReply is the error of a call that has neither reply nor error: a hook has given up,
// and has not said so.
var errNoReply = errors.New("no reply")

// result returns the reply, or the error of c, and whether either is known.
func (c *Call) result() (v any, err error, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.awaitsTime():
		return nil, &NoTimeError{cmp.Or(c.noUs, c.err, errNoReply)}, c.noUs != nil || c.err != nil
	case c.got && c.us != 0:
		return c.us, nil, true
	case c.got:
		return c.value, nil, true
	}
	return nil, c.err, c.err != nil
}

// single is a command of the client that is not sent again either.
type single struct{ *redis.Cmd }

func (single) NoRetry() bool { return true }
