package main

import "sync/atomic"

// gate counts the callers in the critical section of one key.
type gate struct {
	inside   *atomic.Int64 // may be shared with other processes
	overlaps *atomic.Int64 // the number of times that a holder found another holder inside
}

func newGate() gate { return gate{inside: new(atomic.Int64), overlaps: new(atomic.Int64)} }

// gateIn returns a gate that uses two words of a shared memory.
func gateIn(s *shared, word int) gate { return gate{inside: s.word(word), overlaps: s.word(word + 1)} }

func (g gate) enter() {
	if g.inside.Add(1) != 1 {
		g.overlaps.Add(1)
	}
}

func (g gate) leave() { g.inside.Add(-1) }
