package leader

import (
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/retry"
)

// Option is a setting of an election, given to Run or New.
type Option func(*config)

type config struct {
	acquire []core.AcquireOption
	pause   retry.Policy
	onTerm  func(token uint64, leading bool)
}

// defaultPause is the default of Pause. It begins with a second, because work that has
// failed may fail again at once.
var defaultPause = retry.Policy{Initial: time.Second, Max: time.Minute, Multiplier: 2, Jitter: 0.5}

// Acquire sets the options with which the lock is acquired. After the death of the
// leader's process there is no leader for about the time of core.TTL. After Resign, a
// process pauses its campaigns for at most this time. core.MaxHold limits a term.
// core.Wait and core.Retry limit one attempt of a campaign, which then continues with
// the next attempt. core.Name sets the name of the lock. The default is the key if the
// key is a valid name, and otherwise the default of core.Name. core.Shared and
// core.Permits are refused, because there is only one leader. A core.KeepFor among the
// defaults of the Locker has no effect.
func Acquire(opts ...core.AcquireOption) Option {
	return func(c *config) { c.acquire = append(c.acquire, opts...) }
}

// Pause sets the pauses in which a process does not campaign after its work has failed.
// The default is 1 s, doubling up to a minute, ±50%. The sequence starts over after a
// term that was longer than a TTL, and after a campaign or term without a failure of
// the work. When the policy's attempts are used up, Run returns the error of the work.
func Pause(p retry.Policy) Option { return func(c *config) { c.pause = p } }

// OnTerm sets a function that is called with true before the work of each term begins.
// It is called with false after the work has returned and before the key is released.
// token is the term's number. The calls are made one after the other, and delay the
// term.
func OnTerm(f func(token uint64, leading bool)) Option {
	return func(c *config) { c.onTerm = f }
}
