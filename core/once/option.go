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

// config is what the options of one Once add up to.
type config struct {
	retain     time.Duration
	atMostOnce bool
	acquire    []core.AcquireOption
	bad        error // the first thing an option had to refuse
}

// Retain sets how long an answer is kept from when it was saved, 24h by
// default, 1ms to 10 years. After that the same call is a new one. A failed run
// is remembered as long, with its fingerprint and attempt. A run that has not
// said how it ended is remembered for 24h at least: that has to be longer than
// any run takes, and what blocks its repetition meanwhile is only the lease.
func Retain(d time.Duration) Option {
	return func(c *config) {
		c.retain = d
		if d < minRetain || d > maxRetain {
			c.refuse("Retain is %v, %v to %v is allowed", d, minRetain, maxRetain)
		}
	}
}

// AtMostOnce makes sure that a run which died midway is never run again: this
// call and all later ones, until Retain is over, fail with ErrIndeterminate.
// Died midway are a run whose process ended, or lost its lease, and whose answer
// was not saved by the time of the next call, and one whose fn panicked. A run
// that the store began without this process hearing of it, so that Do failed and
// fn was not called, is taken back as soon as the store answers, for 10 minutes;
// it counts as one that died only for a call that comes after its TTL and before
// that.
//
// It is not for an fn that returns an error or calls NotFinal: that says that the work
// was not done, and it is run again. An fn that does not know, since what it called
// timed out, returns an error that matches ErrIndeterminate, and is not.
//
// The policy that counts is that of the caller that finds the unfinished run.
func AtMostOnce() Option { return func(c *config) { c.atMostOnce = true } }

// Acquire sets how a run is claimed: core.TTL, how long the call is in progress
// after its process died; core.MaxHold; core.Wait(d), to wait for the end of a
// run that goes on elsewhere and to replay its answer, in place of ErrInProgress
// at once. Shared, Permits, Also and KeepFor are not for runs.
func Acquire(opts ...core.AcquireOption) Option {
	return func(c *config) { c.acquire = append(c.acquire, opts...) }
}

func (c *config) refuse(format string, args ...any) {
	if c.bad == nil {
		c.bad = fmt.Errorf(format, args...)
	}
}
