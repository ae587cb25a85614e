package core

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The time limits and pauses of the engine, each with its reason.

// The limits for a user's TTL.
const (
	defaultTTL = 30 * time.Second
	minTTL     = 100 * time.Millisecond // a busy machine and a slow network fit in
	maxTTL     = store.MaxKeep          // in milliseconds less than 2^31
	minRetain  = time.Millisecond
)

// trust returns the part of a validity on which a holder relies. The margin covers
// clocks that run at different rates, and a timer that fires late on a busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// budget returns the limit of one call to the store. It is short against ttl, so that
// several attempts fit into ttl.
func budget(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 20*time.Millisecond), 2*time.Second)
}

// lengthenAfter is the age at which a short grant by message is extended to its TTL.
// Work that takes less costs no extension.
const lengthenAfter = 10 * time.Millisecond

// Waiting for a busy key.
const (
	// A waiter that watches also asks every pollEvery, because a wake-up can be lost.
	// Where many wait, all of them together ask pollShare times a second, and each at
	// least every pollMax: one of them that finds the key free is enough.
	pollEvery = 2 * time.Second
	pollShare = 20
	pollMax   = 5 * time.Second
	// earlyLimit bounds the opening of a watch before its caller has asked. The key may
	// be free.
	earlyLimit = 50 * time.Millisecond
	// endMargin is the minimum wait for the end of a holder's time: a question that
	// comes too early has to be asked again. All that wait for it spread over
	// endSpread.
	endMargin = 10 * time.Millisecond
	endSpread = 5 * time.Millisecond
	// freshTime is the maximum age of a hold whose key is taken to change hands all the
	// time: some turns of passTime.
	freshTime = 50 * time.Millisecond
)

// besideReaders is the number of additional readers that may ask side by side after
// each grant to a reader.
const besideReaders = 16

// mostInFront bounds the callers of a key that ask side by side. In a store where a
// question takes as long as there are readers, more callers would delay each other
// beyond their time.
const mostInFront = 32

// Passing on.
const (
	// passTime limits the time after its grant in which a hold may be passed on, and
	// the age of its last confirmation then. Other processes wait for that long.
	passTime = 10 * time.Millisecond
	// askTime bounds how long a release waits for the next waiter of its process to ask
	// the store.
	askTime = 50 * time.Millisecond
)

// The end of a lease or an acquire.
const (
	// releaseLimit bounds a release that the store does not answer.
	releaseLimit = 3 * time.Second
	// withdrawLimit bounds the wait for the withdrawal of a claim that may not wait any
	// more.
	withdrawLimit = 500 * time.Millisecond
	// closeLimit bounds the wait of Close after its ctx is done and the leases are
	// released, for acquires in flight and for background work.
	closeLimit = 2 * time.Second
)

// The cleanup.
const (
	// cleanUpPause is the pause after a release that the store has not answered. It is
	// constant, because a key should be free soon after an outage. Only the pause of a
	// claim with a value doubles, up to longestPause.
	cleanUpPause = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// cleanUpLeast is the minimum time of the attempts, however short the TTL. An
	// acquire can wait in the socket of a frozen server, which grants it when it goes
	// on.
	cleanUpLeast = time.Minute
	// cleanUpRun is the same minimum where a run has to be saved or undone. Without
	// that the run counts as one that died, for as long as its record is retained.
	cleanUpRun = 10 * time.Minute
)

// slack returns how much early a hold of this validity may be extended in one call with
// others. It is a small part of the validity, but enough for leases that were granted
// within a second to share calls.
func slack(valid time.Duration) time.Duration { return min(valid/60, time.Second/2) }

// raisePause returns the pause after which the number of calls that extend holds
// doubles. ttl is the shortest TTL of these holds. The pause is short enough to ask for
// all holds within a third of ttl, even if the calls hang.
func raisePause(ttl time.Duration) time.Duration { return min(ttl/120, time.Second/4) }

// lookEvery is the interval at which the clock is checked for a suspension, while a
// lease is held.
const lookEvery = time.Second

// store.Cards.
const (
	cardEvery = 10 * time.Second
	cardTTL   = 30 * time.Second
	cardLimit = 3 * time.Second // of one write
	cardFrom  = 5 * time.Second // younger holds and waiters have no entry
)
