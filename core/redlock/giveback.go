package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// giveBack recalls what single nodes have granted to a claim that was refused, and
// waits for that as long as one node may take. It tells whether there was anything.
func (b *ballot) giveBack(ctx context.Context) (some bool) {
	s := b.store
	back, some := b.recall(ctx)
	if !some {
		return false
	}
	// Each call settles within its budget, or its node does not keep to its ctx.
	settled := make(chan struct{})
	s.run(func() {
		back.Wait()
		close(settled)
	})
	timer := time.NewTimer(s.budget(b.claim.TTL))
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// recall has the nodes release what they have granted, or will: the ballot is
// over, and not won. A node that has not answered is told later, unless the claim
// comes again: one that waits does, or is released.
func (b *ballot) recall(ctx context.Context) (back *sync.WaitGroup, some bool) {
	s := b.store
	back = new(sync.WaitGroup)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final = true
	for i, v := range b.votes {
		switch {
		case b.asked[i] || v.kind == unknown:
			if !b.claim.Wait {
				s.janitor.later(b.claim, i)
			}
		case b.holds(v):
			s.ledger.leave(&b.claim, i)
			back.Add(1)
			some = true
			s.sendBack(ctx, s.nodes[i], b.claim, func(error) { back.Done() })
		}
	}
	return back, some
}

// expel gives back what nodes have granted to another owner than the majority: a
// claim that joins finds its owner at some nodes only.
func (b *ballot) expel(ctx context.Context) {
	s := b.store
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if !b.asked[i] && b.holds(v) && v.grant.Owner != b.owner {
			s.ledger.leave(&b.claim, i)
			s.sendBack(ctx, s.nodes[i], b.claim, func(error) {})
		}
	}
}

// sendBack releases a hold that was granted, of which the ledger knows that it
// leaves. It plants no tombstone: the same claim may come again.
func (s *Store) sendBack(ctx context.Context, n *node, c core.Claim, done func(error)) {
	brief := c
	brief.TTL, brief.Wait, brief.Keep = 0, false, 0
	s.call(ctx, n, s.budget(c.TTL), func(ctx context.Context) error {
		return n.store.Release(ctx, brief)
	}, func(err error) {
		k := kindOf(err)
		// Also if it was certainly not told: the janitor will, and the claim
		// must not come again meanwhile.
		again := k != granted && k != lost
		s.ledger.left(&c, n.index, released{unknown: again && k != failed, again: again})
		if again {
			s.janitor.now(c, n.index, true)
		}
		done(err)
	})
}
