package once

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	defaultRetain = 24 * time.Hour
	minRetain     = time.Millisecond
	maxRetain     = 10 * 365 * 24 * time.Hour
)

// Option is a setting of a Once, given to New.
type Option func(*config)

// config is the sum of the options of one Once.
type config struct {
	retain     time.Duration
	atMostOnce bool
	acquire    []core.AcquireOption
	bad        error // the first error of an option
}

// Retain sets how long an answer is stored after it was saved, from 1ms to 10 years.
// The default is 24h. After that the same call is a new one. A failed run is retained
// as long, with its fingerprint and attempt. An unfinished run is retained for at least
// 24h, which has to be longer than any run takes. Only the lease blocks its repetition
// in that time.
func Retain(d time.Duration) Option {
	return func(c *config) {
		c.retain = d
		if d < minRetain || d > maxRetain {
			c.refuse("Retain is %v, %v to 10 years is allowed", d, minRetain)
		}
	}
}

// AtMostOnce makes sure that a run that died midway is never run again: this call and
// all later ones fail with ErrIndeterminate until Retain has passed. Two kinds of runs
// died midway: a run whose process died or lost its lease, and whose answer was not
// saved by the time of the next call, and a run whose fn panicked.
//
// A run that the store began without an answer to this process, so that Do failed and
// fn was not called, is taken back as soon as the store answers; that is tried for 10 minutes. It
// counts as a run that died only for a call that comes after its TTL and before that.
//
// AtMostOnce does not apply to an fn that returns an error or calls NotFinal: the work
// was then not done, and it is run again. An fn that does not know, because a call of
// its own timed out, returns an error that matches ErrIndeterminate, and is not run
// again.
//
// The policy of the caller that finds the unfinished run applies.
func AtMostOnce() Option { return func(c *config) { c.atMostOnce = true } }

// Acquire sets the options with which a run is claimed. core.TTL is how long the call
// is in progress after its process died. core.MaxHold bounds a run. core.Wait(d) waits
// for the end of a run in progress elsewhere and replays its answer; the default is
// ErrInProgress at once. Shared, Permits, Also and KeepFor are not for runs.
func Acquire(opts ...core.AcquireOption) Option {
	return func(c *config) { c.acquire = append(c.acquire, opts...) }
}

func (c *config) refuse(format string, args ...any) {
	if c.bad == nil {
		c.bad = fmt.Errorf(format, args...)
	}
}
