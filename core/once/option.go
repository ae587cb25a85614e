package once

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/words"
)

const (
	defaultRetain = 24 * time.Hour
	minRetain     = time.Millisecond
	maxRetain     = 10 * 365 * 24 * time.Hour
)

// Option is a setting of a Once, for New and WithOptions.
type Option func(*config)

type config struct {
	retain     time.Duration
	atMostOnce bool
	acquire    []core.AcquireOption
	bad        error // the first error of an option
}

// Retain sets the time for which a saved answer is stored, from 1 ms to 10 years. The
// default is 24 h. After that time the same call counts as new. The fingerprint and the
// attempt of a failed run are retained for the same time. An unfinished run is retained
// for d or 24 h, whichever is longer. A run must not take longer than that. After that
// time only its lease prevents a repetition, and a run that died is forgotten.
func Retain(d time.Duration) Option {
	return func(c *config) {
		c.retain = d
		if d < minRetain || d > maxRetain {
			c.refuse("Retain %s is out of range (%s to 10 years)", words.Duration(d), words.Duration(minRetain))
		}
	}
}

// AtMostOnce makes sure that a run that died midway is not run again until the time of
// Retain has passed. The call that finds such a run fails with ErrIndeterminate, and
// begins the time of Retain. In this time later calls with the same fingerprint fail
// with ErrIndeterminate too. A run died midway if its process died or lost its lease,
// and its answer is not saved at the time of the next call. A run whose fn panicked
// also died midway.
//
// If the store began a run and none of the store's replies arrived, Do fails without
// calling fn. The undo of the run is retried until the store answers, for at least 10
// minutes. Between the end of the run's TTL and the undo, another call counts the run
// as a run that died.
//
// AtMostOnce does not apply to an fn that returns an error or calls NotFinal. The work
// was then not done, and the next call runs it again. An fn that does not know the
// outcome of its work, for example after a time-out, returns an error that matches
// ErrIndeterminate. The work is then not run again.
//
// The Once that finds an unfinished run decides by its own option, whatever the option
// of the Once that began the run.
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
