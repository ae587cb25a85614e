package redisstore

import (
	"context"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Extend implements store.Store. It extends all claims of one server in one round trip.
// If the server does not know the script, one claim takes one more round trip, and
// several claims take two more. A claim whose slot has moved also takes one more. It
// calls the servers in parallel, so that a hung server does not delay the results of
// the others. When ctx is done or two seconds have passed, Extend returns the results
// that have arrived, and errors for the other claims.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	valid := make([]int, 0, len(claims))
	items := make([]pipeline.Item, 0, len(claims))
	for i := range claims {
		c := &claims[i]
		if err := s.usable("extend", c); err != nil {
			answers[i].Err = err
			continue
		}
		item := pipeline.Item{Key: s.key(c.Key), Text: c.Lease, Num: millis(c.TTL)}
		if s.plain {
			item.Text = c.Owner
		}
		valid, items = append(valid, i), append(items, item)
	}
	if len(valid) == 0 {
		return answers
	}
	ctx, cancel := pipeline.Bounded(ctx)
	defer cancel()
	for n, r := range s.pipeline.DoAll(ctx, s.script.extend, "extend", items) {
		answers[valid[n]].Err = s.extended(ctx, r)
	}
	return answers
}

func (s *Store) extended(ctx context.Context, r pipeline.Result) error {
	if r.Err != nil {
		return s.failure(ctx, "extend", r.Err)
	}
	a, err := parse("extend", r.Reply)
	if err != nil {
		return err
	}
	return confirmed("extend", a)
}
