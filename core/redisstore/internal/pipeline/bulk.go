package pipeline

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// Item has the arguments of one of many calls of a script.
type Item struct {
	Key, Text string
	Num       int64
}

// Result is the outcome of one of many calls.
type Result struct {
	Reply any
	Err   error // Sent tells whether the call may have reached the server
}

// bulk is many calls of one script that go to one server together.
type bulk struct {
	server  *server
	begun   outage.Mark
	state   state
	second  state   // of those that are sent once more
	brief   tracked // the script's name
	whole   tracked // its text
	word    any     // the first argument
	indexes []int   // of the items
	calls   []bulkCall
	again   map[int]*bulkCall // calls that were sent once more, by position
	err     error             // what ended it, for calls that have neither reply nor error
	ended   bool              // calls, again and err may be read
}

// newBulk is a bulk of the items with these indexes.
func newBulk(ctx context.Context, to *server, script *Script, word any, items []Item, indexes []int) *bulk {
	b := &bulk{server: to, begun: to.gate.Begin(), word: word, indexes: indexes, calls: make([]bulkCall, len(indexes))}
	b.brief, b.whole = tracked{&b.state, script.sha}, tracked{&b.second, script.source}
	for n, i := range indexes {
		b.calls[n].item = items[i]
		b.calls[n].ready(ctx, "evalsha", &b.brief, word)
	}
	return b
}

// run sends b, and tells done when it has come back.
func (b *bulk) run(ctx context.Context, client redis.UniversalClient, done chan<- *bulk) {
	defer func() {
		if r := recover(); r != nil {
			b.err = fmt.Errorf("panic in the client: %v", r)
		}
		done <- b
	}()
	b.send(ctx, client)
}

// send sends all calls in one pipeline, and those for which the server did not
// know the script in another one.
func (b *bulk) send(ctx context.Context, client redis.UniversalClient) {
	pipe := client.Pipeline()
	b.sendAll(ctx, pipe)
	if dialed(b.err) != nil && b.state.unsent() {
		if spare := b.server.other(); spare != nil {
			pipe = spare.client.Pipeline()
			b.sendAll(ctx, pipe)
		}
	}
	for n := range b.calls {
		c := &b.calls[n]
		if unknownScript(c.Cmd.Err()) {
			w := &bulkCall{item: c.item, first: c}
			w.ready(ctx, "eval", &b.whole, b.word)
			if b.again == nil {
				b.again = make(map[int]*bulkCall)
			}
			b.again[n] = w
			_ = pipe.Process(ctx, w)
		}
	}
	if len(b.again) > 0 && !b.second.abandoned() {
		_, b.err = pipe.Exec(ctx)
	}
}

func (b *bulk) sendAll(ctx context.Context, pipe redis.Pipeliner) {
	for n := range b.calls {
		_ = pipe.Process(ctx, &b.calls[n])
	}
	_, b.err = pipe.Exec(ctx)
}

// read fills in the results that have arrived.
func (b *bulk) read(ctx context.Context, results []Result) {
	if !b.ended {
		b.state.leave()
		b.second.leave()
	}
	err := b.server.judge(ctx, b.begun, b.outcome(ctx))
	for n, i := range b.indexes {
		results[i] = b.result(ctx, n, err)
	}
}

// outcome is nil if anything was answered.
func (b *bulk) outcome(ctx context.Context) error {
	for n := range b.calls {
		if b.calls[n].answered.Load() {
			return nil
		}
	}
	if b.ended {
		return b.err
	}
	return context.Cause(ctx)
}

// result returns the result of the call at position n. The judged error is nil if
// anything was answered.
func (b *bulk) result(ctx context.Context, n int, judged error) Result {
	c, s := &b.calls[n], &b.state
	if c.answered.Load() {
		return Result{Reply: c.answer}
	}
	if !b.ended {
		return Result{Err: s.outcome(cmp.Or(judged, context.Cause(ctx), errNoReply))}
	}
	last := c
	if w := b.again[n]; w != nil {
		last, s = w, &b.second
	}
	v, err := last.Cmd.Result()
	if err == nil && v == nil {
		err = b.err
	}
	return Result{v, s.outcome(err)}
}

// bulkCall is the call for one item. There may be very many, so that it is smaller
// than a Call.
type bulkCall struct {
	redis.Cmd
	reply
	item  Item
	first *bulkCall // whose reply this is, if it was sent before
	words [7]any    // pointers into itself, as in a Call
}

var _ redis.Cmder = (*bulkCall)(nil)

// ready makes c a command of go-redis.
func (c *bulkCall) ready(ctx context.Context, name string, t *tracked, word any) {
	c.words = [...]any{name, t, "1", &c.item.Key, word, &c.item.Text, &c.item.Num}
	c.Cmd = *redis.NewCmd(ctx, c.words[:]...)
}

// NoRetry implements redis.Cmder.
func (c *bulkCall) NoRetry() bool { return true }

// SetErr implements redis.Cmder as that of a Call does.
func (c *bulkCall) SetErr(err error) {
	c.Cmd.SetErr(err)
	v := c.Cmd.Val()
	if c.first != nil {
		c = c.first
	}
	c.note(v, err)
}

// Clone implements redis.Cmder.
func (c *bulkCall) Clone() redis.Cmder { return single{c.Cmd.Clone().(*redis.Cmd)} }
