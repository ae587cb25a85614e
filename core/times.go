package core

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The time limits and pauses of the engine, each with its reason.

// The default and the limits of a user's TTL, and the lower limit of a record's Retain.
const (
	defaultTTL = 30 * time.Second
	minTTL     = 100 * time.Millisecond // enough for a busy machine and a slow network
	maxTTL     = store.MaxKeep          // 24 days, which is less than 2^31 milliseconds
	minRetain  = time.Millisecond
)

// trust returns the part of a validity during which a holder relies on its hold. The
// margin covers clocks that run at different rates, and a timer that fires late on a
// busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// budget returns the time limit of one call to the store for a claim with this TTL. The
// limit is short compared with the TTL, so that several attempts fit into the TTL. If a
// store's own limit (store.Prompt) is not longer, it replaces this limit, see bounded.
// The limit of redisstore is 2 s, and so applies from a TTL of 12 s on.
func budget(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 20*time.Millisecond), 2*time.Second)
}

// lengthenAfter is the age at which a short grant by message (store.Claim.Push) is
// extended to its TTL. Work that is done sooner needs no extension.
const lengthenAfter = 10 * time.Millisecond

// Waiting for a busy key.
const (
	// pollEvery paces the requests of a waiter with a watch, because a wake-up can be
	// lost. Many waiters together ask about pollShare times a second, because one waiter
	// that finds the key free is enough. Each waiter nevertheless asks at least every
	// pollMax, plus a tenth.
	pollEvery = 2 * time.Second
	pollShare = 20
	pollMax   = 5 * time.Second
	// earlyLimit bounds the time to open a watch before the first request. It is short,
	// because the key may be free.
	earlyLimit = 50 * time.Millisecond
	// endMargin is the minimum wait of a waiter that asks when the holder's time has
	// passed. A request that comes too early has to be repeated. The requests of several
	// waiters are spread over endSpread.
	endMargin = 10 * time.Millisecond
	endSpread = 5 * time.Millisecond
	// freshTime is the age below which the hold of a busy key shows that the key changes
	// hands continuously. It is several times the length of a turn, passTime.
	freshTime = 50 * time.Millisecond
)

// besideReaders is the number of further readers that may ask at the same time after
// each grant to an unfair reader.
const besideReaders = 16

// mostInFront bounds the number of callers of a key that ask at the same time. In some
// stores the time of a request grows with the number of readers. There, more callers
// would delay each other beyond their time limit.
const mostInFront = 32

// Passing on.
const (
	// passTime is the maximum age of a hold that is passed on, counted from the grant.
	// It is also an upper limit for the age of the hold's last confirmation. It is
	// short, because other processes wait for the key while a hold is passed on.
	passTime = 10 * time.Millisecond
	// askTime limits the time for which a release waits until the next waiter of its
	// process has asked the store.
	askTime = 50 * time.Millisecond
)

// The end of a lease or an acquire.
const (
	// releaseLimit bounds a release that the store does not answer.
	releaseLimit = 3 * time.Second
	// withdrawLimit bounds the wait for the withdrawal of a claim whose acquire gave up
	// on a busy key.
	withdrawLimit = 500 * time.Millisecond
	// closeLimit bounds the wait of Close for acquires in flight and for background
	// work. It counts from the release of the leases, after ctx is done.
	closeLimit = 2 * time.Second
)

// The cleanup.
const (
	// cleanUpPause is the pause after a release that the store has not answered. It
	// does not grow, because a key should be free soon after an outage. Only the pause
	// of a claim with a record doubles each time, up to longestPause.
	cleanUpPause = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// cleanUpLeast is the minimum time for which the cleanup tries to release a claim,
	// even if the TTL is shorter. An acquire can wait in the socket of a frozen server,
	// which grants the claim when it continues.
	cleanUpLeast = time.Minute
	// cleanUpRun is the minimum time for a run that has to be saved or undone. A run
	// that is neither saved nor undone counts as an attempt, as long as its record is
	// retained.
	cleanUpRun = 10 * time.Minute
)

// slack returns the time by which a hold of this validity may be extended early, so
// that it shares a call with other holds.
func slack(valid time.Duration) time.Duration { return min(valid/60, time.Second/2) }

// raisePause returns the pause after which extendAll doubles the number of calls. ttl
// is the shortest TTL of the holds. The pause is so short that the calls for all holds
// begin within a third of ttl, even if calls hang.
func raisePause(ttl time.Duration) time.Duration { return min(ttl/120, time.Second/4) }

// lookEvery is the interval at which the watchdog checks the clock for a suspension of
// the machine, while a lease is held.
const lookEvery = time.Second

// The card of the process, see store.Cards.
const (
	cardEvery = 10 * time.Second
	cardTTL   = 30 * time.Second
	cardLimit = 3 * time.Second // the limit of one write
	cardFrom  = 5 * time.Second // holds and waiters below this age have no entry
)
