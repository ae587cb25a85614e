package redlock

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

const (
	defaultTimeout    = 50 * time.Millisecond
	defaultDrift      = 0.01
	leastDrift        = 2 * time.Millisecond
	defaultQuarantine = time.Minute
)

// Option configures a Store.
type Option func(*config)

type config struct {
	timeout    time.Duration
	drift      float64
	fencing    bool
	quarantine time.Duration
	observer   core.Observer // nil if there is none
	observed   bool          // WithObserver was given
	unhealed   bool          // for tests: no node gets a claim back that it lacks
}

// WithNodeTimeout sets the time after which the other nodes may decide without a node that
// has not answered. The default is 50 ms; 1 ms to 10 s are allowed.
//
// It is no limit for a call. As long as the nodes that have answered cannot decide, a call
// waits for the others until its ctx is done, and at most for Limit. A few times the round
// trip to the farthest node is enough. A frozen node costs this time where the others are
// split. A refusal can cost a few times as much while a node lacks the holder's claim.
func WithNodeTimeout(d time.Duration) Option {
	return func(c *config) { c.timeout = d }
}

// WithDrift sets the part of the TTL that is taken off because clocks run at different rates.
// The default is 0.01; 0 to less than 1 is allowed. Another 2 ms are taken off in any case. A
// factor of 0.01 allows clocks to gain or lose a hundredth of the TTL on each other within
// one TTL. It does not cover a clock that jumps.
func WithDrift(factor float64) Option {
	return func(c *config) { c.drift = factor }
}

// WithFencing gives exclusive claims a token that grows from grant to grant, whichever nodes
// make up the majority. It costs a second round: the highest token of the first round is
// rounded up and written back to a majority before Acquire returns. Without this option
// tokens are 0.
func WithFencing() Option {
	return func(c *config) { c.fencing = true }
}

// WithQuarantine sets the longest TTL that any client of these nodes uses. The default is one
// minute. A claim with a longer TTL fails with store.ErrInvalid.
//
// A node that started less than this ago may have forgotten holds that have not
// expired, so its votes do not count until it is older. 0 turns that off, for nodes
// that write everything to disk before they answer (appendfsync always).
//
// The option needs nodes that know their age (store.Node), as redisstore can. A key
// that Claim.Keep keeps for longer than this after its release is not protected.
func WithQuarantine(longest time.Duration) Option {
	return func(c *config) { c.quarantine = longest }
}

// WithObserver notifies o when a node stops counting or counts again: with core.NodeOut
// and the reason, if it does not answer any more or was restarted, and with
// core.NodeBack. Only the calls of the Store show this, so o is not notified while
// nothing is locked. o may be the observer of the Locker; it must not block.
func WithObserver(o core.Observer) Option {
	return func(c *config) { c.observer, c.observed = o, true }
}

// check returns an error for options that cannot work.
func (c *config) check() error {
	switch {
	case c.timeout < time.Millisecond || c.timeout > 10*time.Second:
		return fmt.Errorf("redlock: a node timeout of %v: 1ms to 10s are allowed: %w", c.timeout, store.ErrInvalid)
	case !(c.drift >= 0 && c.drift < 1):
		return fmt.Errorf("redlock: a drift of %v: 0 to less than 1 is allowed: %w", c.drift, store.ErrInvalid)
	case c.observed && c.observer == nil:
		return fmt.Errorf("redlock: the observer is nil: %w", store.ErrInvalid)
	case c.quarantine < 0:
		return fmt.Errorf("redlock: a quarantine of %v: it cannot be negative: %w", c.quarantine, store.ErrInvalid)
	}
	return nil
}

// valid returns the time for which a claim may be trusted after it was sent.
func (c *config) valid(ttl time.Duration) time.Duration {
	return ttl - time.Duration(c.drift*float64(ttl)) - leastDrift
}
