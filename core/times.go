package core

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The time limits and pauses of the engine, each with its reason.

// What a user may ask for.
const (
	defaultTTL = 30 * time.Second
	minTTL     = 100 * time.Millisecond // a busy machine and a slow network fit in
	maxTTL     = store.MaxKeep          // in milliseconds less than 2^31
	minRetain  = time.Millisecond
)

// trust is the part of a validity on which a holder relies. The margin covers clocks
// that run at different rates and a timer that fires late on a busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// budget bounds one call to the store: short against ttl, so that several attempts fit
// into it.
func budget(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 20*time.Millisecond), 2*time.Second)
}

// lengthenAfter is the age at which a short grant by message is extended to its TTL. Work
// that takes less costs no extension.
const lengthenAfter = 10 * time.Millisecond

// Waiting for a busy key.
const (
	// A waiter that watches asks every pollEvery too, since a wake-up can be lost. Where many
	// wait, all of them together ask pollShare times a second, and each at least every
	// pollMax: it is enough if one of them finds that the key is free.
	pollEvery = 2 * time.Second
	pollShare = 20
	pollMax   = 5 * time.Second
	// earlyLimit bounds the opening of a watch before its caller has asked: the key may be
	// free.
	earlyLimit = 50 * time.Millisecond
	// endMargin is the least time to wait for the end of a holder's time: a question that is
	// early is asked again. All that wait for it spread over endSpread.
	endMargin = 10 * time.Millisecond
	endSpread = 5 * time.Millisecond
	// freshTime is the age of a hold up to which its key is taken to change hands all the
	// time: some turns of passTime.
	freshTime = 50 * time.Millisecond
)

// besideReaders is how many readers more may ask side by side after each grant to one.
const besideReaders = 16

// mostInFront bounds the callers of a key that ask side by side: in a store where a question
// takes as long as there are readers, more would wait for each other beyond their time.
const mostInFront = 32

// Passing on.
const (
	// passTime bounds the time after its grant in which a hold is passed on, and the age of
	// its last confirmation then. Other processes wait for that long.
	passTime = 10 * time.Millisecond
	// askTime bounds the wait of a release until the next waiter of its process has asked
	// the store.
	askTime = 50 * time.Millisecond
)

// The end of a lease or an acquire.
const (
	// releaseLimit bounds a release that the store does not answer.
	releaseLimit = 3 * time.Second
	// withdrawLimit bounds the wait for the withdrawal of a claim whose time to wait is over.
	withdrawLimit = 500 * time.Millisecond
	// closeLimit bounds the wait of Close after its ctx is done and the leases are released: for
	// acquires that were under way, and for what goes on in the background.
	closeLimit = 2 * time.Second
)

// The cleanup.
const (
	// cleanUpPause is the pause after a release that the store has not answered. It is
	// constant, since a key is to be free soon after an outage. Only the pause of a claim
	// with a value doubles, up to longestPause.
	cleanUpPause = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// cleanUpLeast is how long to try at least, however short the TTL: an acquire can
	// wait in the socket of a frozen server, which grants it when it goes on.
	cleanUpLeast = time.Minute
	// cleanUpRun is the same where a run has to be saved or undone: without that it
	// counts as a run that died for as long as its record is kept.
	cleanUpRun = 10 * time.Minute
)

// slack is how much before it is due a hold of this validity may be extended, in one call with
// others: little of it, but enough for leases that were granted within a second to share calls.
func slack(valid time.Duration) time.Duration { return min(valid/60, time.Second/2) }

// raisePause is the pause after which the calls that extend holds, of which ttl is the shortest
// TTL, become twice as many: short enough for all holds to be asked for within a third of it,
// though the calls hang.
func raisePause(ttl time.Duration) time.Duration { return min(ttl/120, time.Second/4) }

// lookEvery is how often the clock is looked at for a suspension, while anything is held.
const lookEvery = time.Second

// store.Cards.
const (
	cardEvery = 10 * time.Second
	cardTTL   = 30 * time.Second
	cardLimit = 3 * time.Second // of one write
	cardFrom  = 5 * time.Second // younger holds and waiters have no entry
)
