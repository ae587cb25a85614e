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

// Call is one command on one key. It is sent once, alone or with others. A caller gets
// a Call from a Pipeline, adds at most four texts and five numbers as arguments, and
// passes the Call to Do once. After that the caller must not use the Call any more.
//
// The texts and numbers are stored in the Call, and the command's arguments are pointers
// to them. The pointers save an allocation for each argument, and keep the values out of
// the logs of the client's hooks.
type Call struct {
	redis.Cmd
	home      *sync.Pool // the pool for reuse
	script    *Script    // nil if the call contains its text, or calls no script
	payload   payload
	key       name
	optional  bool          // the call is refused while the server is down
	timed     bool          // the reply is replaced by the server's time
	asking    bool          // the slot of the key is about to move to this server
	replicas  int           // the number of replicas for which the WAIT after the call waits
	waitLimit time.Duration // the limit of the WAIT; 0 for no WAIT

	words  []any
	texts  [4]string
	nums   [5]int64
	nt, nn int
	length int    // the length of the texts
	value  []byte // the value of a SET

	mu       sync.Mutex // guards the next fields
	answer   any
	err      error // the client's error, while there is no reply
	answered bool  // answer is the reply, and err is redis.Nil or nil

	// The following fields are for a call that a sender has accepted.
	ctx      context.Context // the caller's
	until    time.Time       // the time at which the call has taken too long
	deadline time.Time       // of ctx; zero if there is none
	over     atomic.Bool     // the call has an outcome
	done     chan struct{}   // receives when the call has an outcome; kept for reuse
	got      Replicated      // the outcome, set before done receives
	fault    error
	clean    bool // the client does not use the call any more

	copied atomic.Bool // a hook has cloned the call, so it is not reused
}

// name is the key in a call's arguments.
type name []byte

// MarshalBinary returns the bytes to write.
func (n *name) MarshalBinary() ([]byte, error) { return *n, nil }

// String returns the key, from which a Cluster client computes the slot.
func (n *name) String() string { return string(*n) }

// newCall returns a call that has no other user. It reuses calls, because allocating some
// ten thousand calls a second would keep the garbage collector busy.
func newCall(home *sync.Pool, key []byte) *Call {
	c, used := home.Get().(*Call)
	if !used {
		c = &Call{done: make(chan struct{}, 1)}
	}
	*c = Call{home: home, done: c.done, words: c.words[:0], value: c.value[:0], key: append(c.key[:0], key...)}
	return c
}

// Optional makes c fail, within about 100 ms, while its server is known to be down.
func (c *Call) Optional() *Call {
	c.optional = true
	return c
}

// Timed replaces a reply of "OK" by the server's time at a moment after c was done, an
// int64 in microseconds. If the time is unknown, c fails with a *NoTimeError although
// it was done.
func (c *Call) Timed() *Call {
	c.timed = true
	return c
}

// Wait sends a WAIT for this number of replicas after c, for at most limit. A limit of
// 0 sends no WAIT. Otherwise the ctx of Do must be Bounded. WAIT counts the replicas that
// have the writes of its own connection, so both commands are in one pipeline.
func (c *Call) Wait(replicas int, limit time.Duration) *Call {
	c.replicas, c.waitLimit = replicas, limit
	return c
}

// Text adds a text argument.
func (c *Call) Text(s string) *Call {
	c.texts[c.nt] = s
	c.length += len(s)
	c.words = append(c.words, &c.texts[c.nt])
	c.nt++
	return c
}

// Num adds a numeric argument.
func (c *Call) Num(v int64) *Call {
	c.nums[c.nn] = v
	c.words = append(c.words, &c.nums[c.nn])
	c.nn++
	return c
}

// Word adds an argument whose value many calls share.
func (c *Call) Word(v any) *Call {
	c.words = append(c.words, v)
	return c
}

// again returns a call with the same arguments, to be sent after c has returned without
// an effect.
func (c *Call) again() *Call {
	n := newCall(c.home, c.key)
	n.script, n.length = c.script, c.length
	n.optional, n.timed, n.asking, n.replicas, n.waitLimit = c.optional, c.timed, c.asking, c.replicas, c.waitLimit
	n.payload.bytes = c.payload.bytes
	n.words = append(n.words, c.words...)
	n.words[slices.Index(n.words, any(&c.payload))] = &n.payload
	return n
}

// withText returns c again, with the text of its script instead of its digest.
func (c *Call) withText() *Call {
	n := c.again()
	n.script, n.payload.bytes, n.words[0] = nil, c.script.source, "eval"
	return n
}

// NoRetry implements redis.Cmder. The client then retries nothing of the call's flight.
func (c *Call) NoRetry() bool { return true }

// Clone implements redis.Cmder.
func (c *Call) Clone() redis.Cmder {
	c.copied.Store(true)
	return single{c.Cmd.Clone().(*redis.Cmd)}
}

// SetErr implements redis.Cmder. It keeps the first reply. go-redis also passes the
// error of a pipeline to calls that were answered.
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

// result returns the reply. Without a reply it returns the client's error, or else err.
func (c *Call) result(err error) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered && c.err == nil {
		return nil, err
	}
	return c.answer, c.err
}

func (c *Call) finish(got Replicated, err error) {
	if c.over.CompareAndSwap(false, true) {
		c.got, c.fault = got, err
		c.done <- struct{}{}
	}
}

// single is a command that go-redis does not retry.
type single struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (single) NoRetry() bool { return true }
