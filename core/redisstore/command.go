package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// command is a call of a script on one key that go-redis sends once, alone or in
// a pipeline. Sending it again is the Locker's decision.
//
// Its arguments are pointers into itself, which saves an allocation for each,
// and keeps owners out of the logs of the client's hooks.
type command struct {
	redis.Cmd
	home   *sync.Pool // where it goes to be used again
	flight *flight
	script *script // nil of one that is no script
	verb   verb
	key    name
	first  *command // whose answer this is, if it was sent before

	words  []any
	texts  [4]string
	nums   [4]int64
	nt, nn int

	length int      // of its texts
	small  [32]byte // room for the value of a SET
	label  [64]byte // room for the key

	heard
	alone flight

	// Of a call that a sender carries.
	ctx     context.Context // the caller's
	until   time.Duration   // when it has taken too long, as its sender tells time
	stays   bool            // its caller cannot leave it
	done    chan struct{}   // receives when the call has come back, or took too long; stays when it is used again
	joined  bool            // it travels in a pipeline
	expired bool            // it took too long; set before done is told
	signed  atomic.Bool     // done was told
	parted  atomic.Bool     // its caller or its trip is done with it

	room [16]any // for words
}

// name is the key in a command's arguments, put together in place.
type name []byte

// MarshalBinary returns what is to be written.
func (n *name) MarshalBinary() ([]byte, error) { return *n, nil }

// String is the key: a Cluster client looks for its slot.
func (n *name) String() string { return string(*n) }

// verb is the name or text of a script in a command's arguments, or what a SET
// sets. go-redis asks for its bytes when it writes the command to a connection
// and not before: that is how a flight knows whether it has left.
type verb struct {
	flight *flight
	bytes  []byte
}

// MarshalBinary returns what is to be written, or an error that ends the
// command.
func (v *verb) MarshalBinary() ([]byte, error) {
	if !v.flight.write() {
		return nil, errLeft
	}
	return v.bytes, nil
}

// String is what logs show.
func (v *verb) String() string { return "script" }

var _ redis.Cmder = (*command)(nil)

// fresh is a command of which nobody knows. They are used again: at some ten
// thousand calls a second their memory would keep the collector busy.
func (s *Store) fresh() *command {
	c, ok := s.commands.Get().(*command)
	if ok {
		*c = command{done: c.done}
	} else {
		c = new(command)
	}
	c.home, c.flight, c.words = &s.commands, &c.alone, c.room[:0]
	return c
}

// part says that the caller, which has read the answer, or the trip, which has
// brought it, is done with c. Each says so once and does not touch c any more; the
// second one gives it away. A call is not given away if its caller left it, the
// client failed, or a hook has a copy, whose arguments are those of c.
func (c *command) part() {
	if !c.parted.CompareAndSwap(false, true) && !c.copied.Load() {
		c.home.Put(c)
	}
}

// newCommand calls a script on a lock's key by its name. Its first argument says
// what for, to who reads SLOWLOG or MONITOR too.
func (s *Store) newCommand(of *script, key string, what any) *command {
	c := s.fresh()
	c.script, c.key = of, s.named(c.label[:0], key)
	c.verb = verb{flight: c.flight, bytes: of.sha}
	c.words = append(c.words, "evalsha", &c.verb, "1", &c.key, what)
	return c
}

// newSet is SET key value NX PX ms.
func (s *Store) newSet(key, value string, ms int64) *command {
	c := s.fresh()
	c.key, c.length = s.named(c.label[:0], key), len(value)
	c.verb = verb{flight: c.flight, bytes: append(c.small[:0], value...)}
	c.words = append(c.words, "set", &c.key, &c.verb, "nx", "px")
	return c.num(ms)
}

// text adds an argument.
func (c *command) text(s string) *command {
	c.texts[c.nt] = s
	c.length += len(s)
	c.words = append(c.words, &c.texts[c.nt])
	c.nt++
	return c
}

// num adds an argument.
func (c *command) num(v int64) *command {
	c.nums[c.nn] = v
	c.words = append(c.words, &c.nums[c.nn])
	c.nn++
	return c
}

// word adds an argument that is shared by many commands.
func (c *command) word(v any) *command {
	c.words = append(c.words, v)
	return c
}

// ready makes c a command of go-redis, once it has its arguments.
func (c *command) ready(ctx context.Context) *command {
	c.Cmd = *redis.NewCmd(ctx, c.words...)
	return c
}

// whole is the same call with the text of the script, if it has one, for a
// server that does not know it.
func (c *command) whole(ctx context.Context) *command {
	w := &command{home: c.home, flight: c.flight, script: c.script, key: c.key, first: c, words: slices.Clone(c.words), length: c.length}
	if c.script == nil {
		w.verb = verb{flight: c.flight, bytes: c.verb.bytes}
		w.words[2] = &w.verb
	} else {
		w.verb = verb{flight: c.flight, bytes: c.script.source}
		w.words[0], w.words[1] = "eval", &w.verb
	}
	return w.ready(ctx)
}

// NoRetry implements redis.Cmder.
func (c *command) NoRetry() bool { return true }

// SetErr implements redis.Cmder. In a pipeline it is called as soon as the
// reply of this command has been read, and again with the error that ended the
// pipeline: the answer is kept, and its caller told, at once.
func (c *command) SetErr(err error) {
	c.Cmd.SetErr(err)
	v := c.Cmd.Val()
	if c.first != nil {
		c = c.first
	}
	if c.hear(v, err) && c.joined {
		c.sign()
	}
}

// heard is the first answer that was read.
type heard struct {
	answer   any // once answered is set
	answered atomic.Bool
	copied   atomic.Bool // by a hook: not to be used again
}

// hear takes what go-redis sets in a command, and tells whether it is an answer
// and the first one.
func (h *heard) hear(v any, err error) bool {
	if (err != nil || v == nil) && err != redis.Nil || h.answered.Load() {
		return false
	}
	h.answer = v
	h.answered.Store(true)
	return true
}

// sign tells the caller that there is nothing more to wait for.
func (c *command) sign() {
	if c.done != nil && c.signed.CompareAndSwap(false, true) {
		c.done <- struct{}{}
	}
}

// Clone implements redis.Cmder.
func (c *command) Clone() redis.Cmder {
	c.copied.Store(true)
	return single{c.Cmd.Clone().(*redis.Cmd)}
}

// reply returns what the server answered to c, or to c as a whole.
func (c *command) reply(last *command) (any, error) {
	if c.answered.Load() {
		return c.answer, nil
	}
	return last.Cmd.Result()
}

// answer is what a script answers: a list that begins with a word and mostly a
// number, or only a number or its digits, which then stand for okay and that number.
type answer struct {
	word, n int64
	list    []any
}

// parse checks the shape of an answer.
func parse(op string, v any) (answer, error) {
	switch v := v.(type) {
	case int64:
		return answer{word: okay, n: v}, nil
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return answer{word: okay, n: n}, nil
		}
	case []any:
		if len(v) == 0 {
			break
		}
		a := answer{list: v}
		var ok bool
		if a.word, ok = v[0].(int64); !ok {
			break
		}
		if len(v) > 1 {
			a.n, _ = v[1].(int64)
		}
		return a, nil
	}
	return answer{}, fmt.Errorf("redisstore: %s: outcome unknown: answer of type %T cannot be read", op, v)
}
