package redlock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Elections that a claim takes part in, and rounds of a split vote in one: a few, with
// growing pauses from splitPause on, or more for half of a node's time, within which the
// others have given back.
const (
	elections   = 3
	splitRounds = 7
	splitPause  = time.Millisecond
	firstGrace  = 5 * time.Millisecond // for the first nodes to say whose they are
)

// insist asks again in a split vote, if this claim is the favourite.
func (b *ballot) insist(ctx context.Context, v verdict, start time.Time) verdict {
	if v == refused {
		b.settleFirst(ctx)
	}
	return b.again(ctx, v, start, b.favourite)
}

// again asks those that were busy a few times, while the claim is refused and may.
func (b *ballot) again(ctx context.Context, v verdict, start time.Time, may func() bool) verdict {
	pause, begun := splitPause, time.Now()
	for round := 0; round < splitRounds || time.Since(begun) < b.store.timeout/2; round++ {
		if v != refused || !may() || time.Since(start) > 3*b.store.timeout {
			return v
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return v
		}
		pause = min(2*pause, 64*splitPause)
		b.ask(ctx, func(v vote) bool { return v.kind == busy })
		v = b.await(ctx)
	}
	return v
}

// settleFirst waits a moment for the nodes before the first one that has answered:
// without them it is not certain who the favourite is. One whose time is over, or
// that had no answer the last time, is not waited for.
func (b *ballot) settleFirst(ctx context.Context) {
	took := time.Since(b.since)
	timer := time.NewTimer(min(b.store.timeout-took, max(firstGrace, 2*took)))
	defer timer.Stop()
	for b.firstIsSilent() {
		select {
		case <-b.news:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (b *ballot) firstIsSilent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		switch {
		case b.asked[i] && b.store.nodes[i].silent.Load():
		case b.asked[i] || v.kind == granted || v.kind == busy:
			return b.asked[i]
		}
	}
	return false
}

// favourite tells that this claim has the first of the nodes that have granted it
// to somebody. In a split vote that is one claim only: it may go on asking, while
// the others give back.
func (b *ballot) favourite() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if !b.asked[i] && (v.kind == granted || v.kind == busy) {
			return v.kind == granted
		}
	}
	return false
}
