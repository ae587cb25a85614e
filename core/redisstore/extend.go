package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// Extend implements core.Store: all claims that live on one server travel in
// one round trip, and servers are asked side by side, so that one that hangs
// does not delay the answers of the others. When ctx ends, the answers that
// have arrived by then are given.
func (s *Store) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	answers := make([]core.Extension, len(claims))
	valid := make([]int, 0, len(claims))
	for i := range claims {
		if err := s.usable("extend", &claims[i]); err != nil {
			answers[i].Err = err
		} else {
			valid = append(valid, i)
		}
	}
	if len(valid) == 0 {
		return answers
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	batches := s.batches(ctx, claims, valid, answers)
	done := make(chan *batch, len(batches))
	for _, b := range batches {
		go func() {
			defer func() {
				if r := recover(); r != nil {
					b.err = fmt.Errorf("panic in the client: %v", r)
				}
				done <- b
			}()
			b.send(ctx, s.client)
		}()
	}
	for range batches {
		select {
		case b := <-done:
			b.ended = true
			continue
		case <-ctx.Done():
		}
		break
	}
	for _, b := range batches {
		if s.read(ctx, b, answers) && s.sender.own {
			calls := b.calls
			clear(calls)
			spareCalls.Put(&calls)
		}
	}
	return answers
}

// spareCalls are arrays of calls that the client is done with, to use again.
var spareCalls sync.Pool

// batch is the claims of one Extend that go to one server.
type batch struct {
	flight  flight
	second  flight // of those that are sent once more
	script  *script
	brief   verb  // the script's name
	whole   verb  // its text
	indexes []int // of the claims
	calls   []extension
	again   map[int]*extension // calls that were sent once more, by position
	err     error              // what ended it, for calls that have neither answer nor error
	ended   bool               // calls, again and err may be read
}

// extension is the call for one claim of a batch. Who holds very many leases does
// little else, so that it is smaller than a command.
type extension struct {
	redis.Cmd
	heard
	first *extension // whose answer this is, if it was sent before
	key   string
	who   string
	ttl   int64
	words [7]any // pointers into itself, as in a command
}

var _ redis.Cmder = (*extension)(nil)

// ready makes x a command of go-redis.
func (x *extension) ready(ctx context.Context, b *batch, name string, v *verb) {
	x.words = [...]any{name, v, "1", &x.key, "extend", &x.who, &x.ttl}
	x.Cmd = *redis.NewCmd(ctx, x.words[:]...)
}

// NoRetry implements redis.Cmder.
func (x *extension) NoRetry() bool { return true }

// SetErr implements redis.Cmder as that of a command does.
func (x *extension) SetErr(err error) {
	x.Cmd.SetErr(err)
	v := x.Val()
	if x.first != nil {
		x = x.first
	}
	x.hear(v, err)
}

// Clone implements redis.Cmder.
func (x *extension) Clone() redis.Cmder {
	x.copied.Store(true)
	return single{x.Cmd.Clone().(*redis.Cmd)}
}

// batches groups the claims by server, and answers those whose server is not
// known.
func (s *Store) batches(ctx context.Context, claims []core.Claim, valid []int, answers []core.Extension) []*batch {
	if s.cluster == nil {
		return []*batch{s.batch(ctx, claims, valid)}
	}
	keys := make([]string, len(valid)) // the caller's claims are its own again when it leaves
	for n, i := range valid {
		keys[n] = s.key(claims[i].Key)
	}
	type place struct {
		master *redis.Client
		err    error
	}
	// The client may have to ask where the slots are.
	places, err := leave(ctx, &flight{}, func() ([]place, error) {
		places := make([]place, len(keys))
		for n, key := range keys {
			places[n].master, places[n].err = s.cluster.MasterForKey(ctx, key)
		}
		return places, nil
	})
	groups := make(map[*redis.Client][]int)
	for n, i := range valid {
		p := place{err: err}
		if err == nil {
			p = places[n]
		}
		if p.err != nil {
			answers[i].Err = s.failure(ctx, "extend", &flight{}, p.err)
			continue
		}
		groups[p.master] = append(groups[p.master], i)
	}
	all := make([]*batch, 0, len(groups))
	for _, indexes := range groups {
		all = append(all, s.batch(ctx, claims, indexes))
	}
	return all
}

func (s *Store) batch(ctx context.Context, claims []core.Claim, indexes []int) *batch {
	b := &batch{script: extendScript, indexes: indexes}
	if spare, ok := spareCalls.Get().(*[]extension); ok && cap(*spare) >= len(indexes) {
		b.calls = (*spare)[:len(indexes)]
	} else {
		b.calls = make([]extension, len(indexes))
	}
	if s.plain {
		b.script = plainExtendScript
	}
	b.brief, b.whole = verb{&b.flight, b.script.sha}, verb{&b.second, b.script.source}
	for n, i := range indexes {
		c, x := &claims[i], &b.calls[n]
		x.key, x.who, x.ttl = s.key(c.Key), c.Lease, millis(c.TTL)
		if s.plain {
			x.who = c.Owner
		}
		x.ready(ctx, b, "evalsha", &b.brief)
	}
	return b
}

// send sends all calls in one pipeline, and those for which the server did not
// know the script in another one.
func (b *batch) send(ctx context.Context, client redis.UniversalClient) {
	pipe := client.Pipeline()
	for n := range b.calls {
		_ = pipe.Process(ctx, &b.calls[n])
	}
	_, b.err = pipe.Exec(ctx)
	for n := range b.calls {
		x := &b.calls[n]
		if isReply(x.Err(), "NOSCRIPT") {
			w := &extension{first: x, key: x.key, who: x.who, ttl: x.ttl}
			w.ready(ctx, b, "eval", &b.whole)
			if b.again == nil {
				b.again = make(map[int]*extension)
			}
			b.again[n] = w
			_ = pipe.Process(ctx, w)
		}
	}
	if len(b.again) > 0 && !b.second.gone() {
		_, b.err = pipe.Exec(ctx)
	}
}

// read fills in the answers that have arrived. It is clean if all have, in one
// pipeline that has not failed: a hook that gives up on one may leave it under way.
func (s *Store) read(ctx context.Context, b *batch, answers []core.Extension) (clean bool) {
	if !b.ended {
		b.flight.leave()
		b.second.leave()
	}
	clean = b.ended && b.err == nil && b.again == nil
	for n, i := range b.indexes {
		answers[i].Err = s.answer(ctx, b, n)
		clean = clean && b.calls[n].answered.Load() && !b.calls[n].copied.Load()
	}
	return clean
}

func (s *Store) answer(ctx context.Context, b *batch, n int) error {
	x, f := &b.calls[n], &b.flight
	var v any
	err := context.Cause(ctx)
	switch {
	case x.answered.Load():
		v, err = x.answer, nil
	case b.ended:
		last := x
		if w := b.again[n]; w != nil {
			last, f = w, &b.second
		}
		if v, err = last.Result(); err == nil && v == nil {
			err = b.err
		}
	case err == nil:
		err = errors.New("no answer")
	}
	if err != nil {
		return s.failure(ctx, "extend", f, err)
	}
	a, err := parse("extend", v)
	if err != nil {
		return err
	}
	return confirmed("extend", a)
}
