package leader

import (
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/retry"
)

// Option is a setting of an election, given to Run or New.
type Option func(*config)

// config is the sum of the options of one election.
type config struct {
	acquire []core.AcquireOption
	pause   retry.Policy
	onTerm  func(token uint64, leading bool)
}

// defaultPause applies to work that has failed, and may fail again at once.
var defaultPause = retry.Policy{Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: 0.5}

// Acquire sets the options with which the lock is acquired. core.TTL is about how long
// there is no leader after the leader's process has died, and how long a process that
// has resigned does not campaign. core.MaxHold limits a term. core.Wait and core.Retry
// limit one attempt of a campaign, which then goes on with the next one. The default
// name of the lock is the key, or its part before the first ':'; core.Name sets another
// one. A leader is alone: core.Shared and core.Permits are refused.
func Acquire(opts ...core.AcquireOption) Option {
	return func(c *config) { c.acquire = append(c.acquire, opts...) }
}

// Pause sets how long a process whose work has failed does not campaign. The default is
// 1s, doubling up to a minute, ±50%. The pauses start over after a term that was longer
// than a TTL, or did not end by a failure. When the policy's attempts are used up, Run
// returns the error of the work.
func Pause(p retry.Policy) Option { return func(c *config) { c.pause = p } }

// OnTerm sets a function that is called with true before the work of each term begins,
// and with false when it has returned, before the key is released. token is the term's
// number. The calls are made one after the other, and hold up the term.
func OnTerm(f func(token uint64, leading bool)) Option {
	return func(c *config) { c.onTerm = f }
}
