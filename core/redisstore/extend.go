package redisstore

import (
	"context"
	"errors"
	"fmt"

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
		s.read(ctx, b, answers)
	}
	return answers
}

// batch is the claims of one Extend that go to one server.
type batch struct {
	flight  flight
	indexes []int // of the claims
	calls   []*command
	again   map[int]*command // calls that were sent once more, by position
	err     error            // what ended it, for calls that have neither answer nor error
	ended   bool             // calls, again and err may be read
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
	b := &batch{indexes: indexes, calls: make([]*command, len(indexes))}
	for n, i := range indexes {
		c := &claims[i]
		sc, who := extendScript, c.Lease
		if s.plain {
			sc, who = plainExtendScript, c.Owner
		}
		b.calls[n] = newCommand(&b.flight, sc, s.key(c.Key)).text(who).num(millis(c.TTL)).ready(ctx)
	}
	return b
}

// send sends all calls in one pipeline, and those for which the server did not
// know the script in another one.
func (b *batch) send(ctx context.Context, client redis.UniversalClient) {
	pipe := client.Pipeline()
	for _, c := range b.calls {
		_ = pipe.Process(ctx, c)
	}
	_, b.err = pipe.Exec(ctx)
	b.again = make(map[int]*command)
	for n, c := range b.calls {
		if isReply(c.Cmd.Err(), "NOSCRIPT") {
			w := c.whole(ctx)
			b.again[n] = w
			_ = pipe.Process(ctx, w)
		}
	}
	if len(b.again) > 0 && b.flight.again() {
		_, b.err = pipe.Exec(ctx)
	}
}

// read fills in the answers that have arrived.
func (s *Store) read(ctx context.Context, b *batch, answers []core.Extension) {
	if !b.ended {
		b.flight.leave()
	}
	for n, i := range b.indexes {
		answers[i].Err = s.answer(ctx, b, n)
	}
}

func (s *Store) answer(ctx context.Context, b *batch, n int) error {
	c := b.calls[n]
	var v any
	err := context.Cause(ctx)
	switch {
	case b.ended:
		last := c
		if w := b.again[n]; w != nil {
			last = w
		}
		if v, err = c.reply(last); err == nil && v == nil {
			err = b.err
		}
	case c.answered.Load():
		v, err = c.answer, nil
	case err == nil:
		err = errors.New("no answer")
	}
	if err != nil {
		return s.failure(ctx, "extend", &b.flight, err)
	}
	a, err := parse("extend", v)
	if err != nil {
		return err
	}
	return confirmed("extend", a)
}
