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

// Option is a setting of a Once, for New and WithOptions.
type Option func(*config)

// config has the settings of one Once, as its options set them.
type config struct {
	retain     time.Duration
	atMostOnce bool
	acquire    []core.AcquireOption
	bad        error // the first error of an option
}

// Retain sets the time for which an answer is stored after it was saved, from 1 ms to
// 10 years. The default is 24 h. After that time the same call counts as new. The
// fingerprint and the attempt of a failed run are retained for the same time. An
// unfinished run is retained for d or 24 h, whichever is longer. A run must not take
// longer than that. After that time only its lease prevents a repetition, and a run that
// died is forgotten.
func Retain(d time.Duration) Option {
	return func(c *config) {
		c.retain = d
		if d < minRetain || d > maxRetain {
			c.refuse("Retain %v is out of range (%v to 10 years)", d, minRetain)
		}
	}
}

// AtMostOnce makes sure that a run that died midway is never run again. The call that
// finds such a run fails with ErrIndeterminate, and so do all later calls until Retain
// has passed. A run died midway if its process died or lost its lease, and its answer
// is not saved at the time of the next call. A run whose fn panicked also died midway.
//
// If the store began a run and its answer did not arrive, Do fails without calling fn.
// The undo of the run is retried until the store answers, for at least 10 minutes.
// Between the end of its TTL and the undo, another call counts such a run as a run that
// died.
//
// AtMostOnce does not apply to an fn that returns an error or calls NotFinal. The work
// was then not done, and the next call runs it again. If fn does not know whether its
// work was done, for example after a time-out, it returns an error that matches
// ErrIndeterminate. The work is then not run again.
//
// The option of the Once that finds an unfinished run decides, not the option of the
// Once that began the run.
func AtMostOnce() Option { return func(c *config) { c.atMostOnce = true } }

// Acquire sets the options with which a run is claimed. core.TTL sets the time for
// which a call stays in progress after the death of its process. core.MaxHold limits
// the time of a run. core.Wait(d) waits for the end of a run in progress elsewhere and
// replays its answer. The default is to fail with ErrInProgress at once. core.Shared,
// core.Permits, core.Also and core.KeepFor are not allowed for runs.
func Acquire(opts ...core.AcquireOption) Option {
	return func(c *config) { c.acquire = append(c.acquire, opts...) }
}

func (c *config) refuse(format string, args ...any) {
	if c.bad == nil {
		c.bad = fmt.Errorf(format, args...)
	}
}
