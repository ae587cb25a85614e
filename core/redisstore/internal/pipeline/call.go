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

// Call is one command on one key, which is sent once, alone or among others. A Pipeline
// makes it. It gets its arguments, at most four texts and five numbers, and is passed to
// Do or DoWait once. After that it does not belong to the caller any more.
//
// Its arguments are pointers into itself, which saves an allocation for each, and keeps
// their values out of the logs of the client's hooks.
type Call struct {
	redis.Cmd
	home     *sync.Pool // to be used again
	script   *Script    // nil if the call has its text, or calls no script
	once     once
	key      name
	optional bool          // it is refused while the server is down
	timed    bool          // its reply is the server's time
	asking   bool          // its slot is about to move here
	replicas int           // that the WAIT behind it waits for
	limit    time.Duration // of the WAIT, 0 for none

	words  []any
	texts  [4]string
	nums   [5]int64
	nt, nn int
	length int    // of its texts
	value  []byte // of a SET

	mu       sync.Mutex // guards the next fields
	answer   any
	err      error // the client's, while there is no reply
	answered bool  // answer is the reply, and err redis.Nil or nil

	// Of a call that a sender has.
	ctx   context.Context // the caller's
	until time.Time       // when it has taken too long
	over  atomic.Bool     // it has an outcome
	done  chan struct{}   // receives when it has one; stays when it is used again
	got   Replicated      // the outcome, set before
	fault error
	clean bool // the client is done with it

	copied atomic.Bool // by a hook: not to be used again
}

// name is the key in a call's arguments.
type name []byte

// MarshalBinary returns the bytes to write.
func (n *name) MarshalBinary() ([]byte, error) { return *n, nil }

// String returns the key: a Cluster client looks for its slot.
func (n *name) String() string { return string(*n) }

// newCall returns a call that has no other user. Calls are used again: at some ten
// thousand a second their memory would keep the collector busy.
func newCall(home *sync.Pool, key []byte) *Call {
	c, used := home.Get().(*Call)
	if !used {
		c = &Call{done: make(chan struct{}, 1)}
	}
	*c = Call{home: home, done: c.done, words: c.words[:0], value: c.value[:0], key: append(c.key[:0], key...)}
	return c
}

// Optional makes c fail at once while its server is known to be down.
func (c *Call) Optional() *Call {
	c.optional = true
	return c
}

// Timed replaces a reply of "OK" by the server's time at a moment after c was done,
// an int64 in us. If the time is not known, c fails with a *NoTimeError although it was
// done.
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

// Word adds an argument that many calls share.
func (c *Call) Word(v any) *Call {
	c.words = append(c.words, v)
	return c
}

// again returns a call with the same arguments, to be sent after c has returned with
// nothing done.
func (c *Call) again() *Call {
	n := newCall(c.home, c.key)
	n.script, n.length = c.script, c.length
	n.optional, n.timed, n.asking, n.replicas, n.limit = c.optional, c.timed, c.asking, c.replicas, c.limit
	n.once.bytes = c.once.bytes
	n.words = append(n.words, c.words...)
	n.words[slices.Index(n.words, any(&c.once))] = &n.once
	return n
}

// withText returns c again, with the text of its script in place of its name.
func (c *Call) withText() *Call {
	n := c.again()
	n.script, n.once.bytes, n.words[0] = nil, c.script.source, "eval"
	return n
}

// NoRetry implements redis.Cmder.
func (c *Call) NoRetry() bool { return true }

// Clone implements redis.Cmder.
func (c *Call) Clone() redis.Cmder {
	c.copied.Store(true)
	return single{c.Cmd.Clone().(*redis.Cmd)}
}

// SetErr implements redis.Cmder. It keeps the first reply: go-redis passes the error
// that ended a pipeline also to calls that were answered.
func (c *Call) SetErr(err error) {
	c.Cmd.SetErr(err)
	v := c.Cmd.Val()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered {
		c.answer, c.err = v, err
		c.answered = err == redis.Nil || err == nil && v != nil
	}
}

var errNoReply = errors.New("no reply")

// result returns the reply, or the error that the client set, or err.
func (c *Call) result(err error) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered && c.err == nil {
		return nil, err
	}
	return c.answer, c.err
}

// finish sets the outcome of c, unless it has one.
func (c *Call) finish(got Replicated, err error) {
	if c.over.CompareAndSwap(false, true) {
		c.got, c.fault = got, err
		c.done <- struct{}{}
	}
}

// single is a command that go-redis sends once.
type single struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (single) NoRetry() bool { return true }
