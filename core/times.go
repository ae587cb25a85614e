package core

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The time limits and pauses of the engine, each with its reason.

// The default and the limits of a user's TTL, and the lower limit of a record's Retain.
const (
	defaultTTL = 30 * time.Second
	minTTL     = 100 * time.Millisecond // long enough for a busy machine and a slow network
	maxTTL     = store.MaxKeep          // 24 days: fewer than 2^31 milliseconds
	minRetain  = time.Millisecond
)

// trust returns the part of a validity during which a holder relies on its hold. The
// margin covers clocks that run at different rates, and a timer that fires late on a
// busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// budget returns the limit of one call to the store. The limit is short compared with
// ttl, so that several attempts fit into ttl.
func budget(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 20*time.Millisecond), 2*time.Second)
}

// lengthenAfter is the age at which a short grant by message is extended to its TTL.
// Shorter work needs no extension.
const lengthenAfter = 10 * time.Millisecond

// Waiting for a busy key.
const (
	// A waiter with a watch also asks every pollEvery, because a wake-up can be lost.
	// If many wait, all of them together ask about pollShare times a second, because
	// one that finds the key free is enough. Each of them still asks at least every
	// pollMax, plus a tenth.
	pollEvery = 2 * time.Second
	pollShare = 20
	pollMax   = 5 * time.Second
	// earlyLimit bounds the opening of a watch before the caller's first request. It is
	// short, because the key may be free.
	earlyLimit = 50 * time.Millisecond
	// endMargin is the minimum wait for the end of a holder's time, because a request
	// that comes too early has to be repeated. The requests of all waiters spread over
	// endSpread.
	endMargin = 10 * time.Millisecond
	endSpread = 5 * time.Millisecond
	// freshTime is the age below which the hold of a key is a sign that the key changes
	// hands continuously. It is several turns of passTime.
	freshTime = 50 * time.Millisecond
)

// besideReaders is the number of additional readers that each grant to a reader allows
// to ask side by side.
const besideReaders = 16

// mostInFront bounds the callers of a key that ask side by side. In some stores the
// time of a request grows with the number of readers. There, more callers would delay
// each other beyond their time limit.
const mostInFront = 32

// Passing on.
const (
	// passTime is the maximum age of a hold that is passed on, counted from the grant,
	// and of its last confirmation. Passing on makes other processes wait for that
	// time.
	passTime = 10 * time.Millisecond
	// askTime bounds how long a release waits for the next waiter of its process to ask
	// the store.
	askTime = 50 * time.Millisecond
)

// The end of a lease or an acquire.
const (
	// releaseLimit bounds a release that the store does not answer.
	releaseLimit = 3 * time.Second
	// withdrawLimit bounds the wait for the withdrawal of a claim whose acquire gave up
	// on a busy key.
	withdrawLimit = 500 * time.Millisecond
	// closeLimit bounds the wait of Close after its ctx is done and the leases are
	// released, for acquires in flight and for background work.
	closeLimit = 2 * time.Second
)

// The cleanup.
const (
	// cleanUpPause is the pause after a release that the store has not answered. The
	// pause does not grow, because a key should be free soon after an outage. Only the
	// pause of a claim with a value doubles, up to longestPause.
	cleanUpPause = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// cleanUpLeast is the minimum time for which the cleanup tries to release a claim,
	// even if the TTL is shorter. An acquire can wait in the socket of a frozen server,
	// which grants the claim when it continues.
	cleanUpLeast = time.Minute
	// cleanUpRun is the same minimum for a run that has to be saved or undone. A run
	// that is neither saved nor undone counts as one that died, as long as its record
	// is retained.
	cleanUpRun = 10 * time.Minute
)

// slack returns the time by which a hold of this validity may be extended early, to
// share a call with other holds. It is a small part of the validity, and enough for
// leases that were granted within half a second to share calls if the TTL is 30 s or
// more.
func slack(valid time.Duration) time.Duration { return min(valid/60, time.Second/2) }

// raisePause returns the pause after which the number of calls that extend holds
// doubles. ttl is the shortest TTL of these holds. The pause is short enough that the
// calls for all holds begin within a third of ttl, even if the calls hang.
func raisePause(ttl time.Duration) time.Duration { return min(ttl/120, time.Second/4) }

// lookEvery is the interval at which the watchdog checks the clock for a suspension of
// the machine, while a lease is held.
const lookEvery = time.Second

// The card of the process, see store.Cards.
const (
	cardEvery = 10 * time.Second
	cardTTL   = 30 * time.Second
	cardLimit = 3 * time.Second // the limit of one write
	cardFrom  = 5 * time.Second // younger holds and waiters have no entry
)
