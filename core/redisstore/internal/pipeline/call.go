package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Call is one command on one key, which go-redis sends once, alone or in a pipeline.
// A Pipeline makes it; it gets its arguments, at most four texts and five numbers, and
// is given to Do or DoWait once. It is not the caller's any more then.
//
// Its arguments are pointers into itself, which saves an allocation for each, and
// keeps their values out of the logs of the client's hooks.
type Call struct {
	redis.Cmd
	home     *sync.Pool // where it goes to be used again
	state    *state
	script   *Script // nil if it is no script
	tracked  tracked
	key      name
	first    *Call // whose reply this is, if it was sent before
	optional bool  // it is refused while the server is down
	timed    bool  // it is told the server's time

	at     atomic.Int64          // that time, in us; 0 if it is not known
	noTime atomic.Pointer[error] // why it is not, nil if that is not known either

	words  []any
	texts  [4]string
	nums   [5]int64
	nt, nn int

	length int      // of its texts
	value  [72]byte // room for the value of a SET
	label  [64]byte // room for the key

	reply
	own state

	// Of a call that a sender has.
	ctx     context.Context // the caller's
	until   time.Duration   // when it has taken too long, as its sender tells time
	stays   bool            // its caller cannot leave it
	done    chan struct{}   // receives when the call has come back, or took too long; stays when it is used again
	joined  bool            // it goes with others
	expired bool            // it took too long; set before done is told
	told    atomic.Bool     // done was told
	copied  atomic.Bool     // by a hook: not to be used again
	parted  atomic.Bool     // its caller or its worker is done with it

	room [16]any // for words
}

// name is the key in a call's arguments, put together in place.
type name []byte

// MarshalBinary returns the bytes to write.
func (n *name) MarshalBinary() ([]byte, error) { return *n, nil }

// String is the key: a Cluster client looks for its slot.
func (n *name) String() string { return string(*n) }

var _ redis.Cmder = (*Call)(nil)

// newCall returns a call that has no other user. Calls are used again: at some ten
// thousand a second their memory would keep the collector busy.
func newCall(home *sync.Pool, key []byte) *Call {
	c, ok := home.Get().(*Call)
	if ok {
		*c = Call{done: c.done}
	} else {
		c = new(Call)
	}
	c.home, c.state, c.words = home, &c.own, c.room[:0]
	c.key = append(c.label[:0], key...)
	return c
}

// part says that the caller, which has read the reply, or the worker, which has
// brought it, is done with c. Each says so once and does not touch c any more; the
// second one gives it away. A call is not given away if its caller left it, the
// client failed, or a hook has a copy, whose arguments are those of c.
func (c *Call) part() {
	if !c.parted.CompareAndSwap(false, true) && !c.copied.Load() {
		c.home.Put(c)
	}
}

// Optional has c refused at once while its server is known to be down.
func (c *Call) Optional() *Call {
	c.optional = true
	return c
}

// Timed has a reply of "OK" replaced by the server's time, in us, at a moment after c
// was done, an int64. If that cannot be learned c has a *NoTimeError although it was done.
func (c *Call) Timed() *Call {
	c.timed = true
	return c
}

// Text adds an argument.
func (c *Call) Text(s string) *Call {
	c.texts[c.nt] = s
	c.length += len(s)
	c.words = append(c.words, &c.texts[c.nt])
	c.nt++
	return c
}

// Num adds an argument.
func (c *Call) Num(v int64) *Call {
	c.nums[c.nn] = v
	c.words = append(c.words, &c.nums[c.nn])
	c.nn++
	return c
}

// Word adds an argument that is shared by many calls.
func (c *Call) Word(v any) *Call {
	c.words = append(c.words, v)
	return c
}

// ready makes c a command of go-redis, once it has its arguments.
func (c *Call) ready(ctx context.Context) *Call {
	c.Cmd = *redis.NewCmd(ctx, c.words...)
	return c
}

// whole is the same call, to be sent after c, with the text of the script, if it has
// one, for a server that does not know it. Its reply is one to c, too.
func (c *Call) whole(ctx context.Context) *Call {
	w := &Call{
		home: c.home, state: c.state, script: c.script, key: c.key, first: c,
		optional: c.optional, timed: c.timed, words: slices.Clone(c.words), length: c.length,
	}
	if c.script == nil {
		w.tracked = tracked{c.state, c.tracked.bytes}
		w.words[2] = &w.tracked
	} else {
		w.tracked = tracked{c.state, c.script.source}
		w.words[0], w.words[1] = "eval", &w.tracked
	}
	return w.ready(ctx)
}

// next is whole for a call that has come back, whose reply does not matter any more.
func (c *Call) next(ctx context.Context) *Call {
	w := c.whole(ctx)
	w.first = nil
	return w
}

// NoRetry implements redis.Cmder.
func (c *Call) NoRetry() bool { return true }

// SetErr implements redis.Cmder. In a pipeline it is called as soon as the reply of
// this call has been read, and again with the error that ended the pipeline: the
// reply is kept, and the caller told, at once, or when the time is known.
func (c *Call) SetErr(err error) {
	c.Cmd.SetErr(err)
	v := c.Cmd.Val()
	if c.first != nil {
		c = c.first
	}
	if c.note(v, err) && c.joined && !c.awaitsTime() {
		c.tell()
	}
}

// awaitsTime tells that c was done, and is not told the time yet.
func (c *Call) awaitsTime() bool {
	return c.timed && c.at.Load() == 0 && c.answered.Load() && c.answer == any("OK")
}

// Clone implements redis.Cmder.
func (c *Call) Clone() redis.Cmder {
	c.copied.Store(true)
	return single{c.Cmd.Clone().(*redis.Cmd)}
}

// tell tells the caller that there is nothing more to wait for.
func (c *Call) tell() {
	if c.done != nil && c.told.CompareAndSwap(false, true) {
		c.done <- struct{}{}
	}
}

// expire tells the caller that c has taken too long, if it has.
func (c *Call) expire(now time.Duration) {
	if now > c.until && c.told.CompareAndSwap(false, true) {
		c.expired = true
		c.done <- struct{}{}
	}
}

// late is the error of a call that took too long.
func (c *Call) late() error {
	if !c.expired {
		return nil
	}
	c.state.leave()
	return ErrNoAnswer
}

var errNoReply = errors.New("no reply")

// result returns the reply to c, or to last, which is c or was sent after it.
func (c *Call) result(last *Call) (any, error) {
	switch {
	case !c.answered.Load():
		v, err := last.Cmd.Result()
		if v == nil && err == nil {
			err = errNoReply // a hook has given up, and has not said so
		}
		return v, err
	case c.awaitsTime():
		e := &NoTimeError{errNoReply}
		if why := c.noTime.Load(); why != nil {
			e.cause = *why
		}
		return nil, e
	case c.timed && c.at.Load() > 0:
		return c.at.Load(), nil
	}
	return c.answer, nil
}

// reply is the first reply that was read.
type reply struct {
	answer   any // once answered is set
	answered atomic.Bool
}

// note takes the values that go-redis sets in a command, and tells whether they are a
// reply and the first one.
func (r *reply) note(v any, err error) bool {
	if (err != nil || v == nil) && err != redis.Nil || r.answered.Load() {
		return false
	}
	r.answer = v
	r.answered.Store(true)
	return true
}

// single is a command that go-redis sends once.
type single struct{ *redis.Cmd }

func (single) NoRetry() bool { return true }
