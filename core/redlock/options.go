package redlock

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
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
	unhealed   bool          // for tests that show what healing is for
}

// WithNodeTimeout sets how long one node may take to answer before the others
// decide without it, 50 ms by default, and never more than half of a claim's
// TTL. It should be a few times the round trip to the farthest node, with room to
// dial it, and has to be far below the TTL: it is what a frozen node costs where
// its vote is needed, and half of it is what a refusal can cost while a node lacks
// the holder's claim. It has to be from 1 ms to 10 s.
func WithNodeTimeout(d time.Duration) Option {
	return func(c *config) { c.timeout = d }
}

// WithDrift sets which part of the TTL is kept back because clocks run at
// different rates, 0.01 by default; 2 ms come on top. It has to be at least 0 and
// less than 1. A factor of 0.01 bears clocks that gain or lose a hundredth on
// each other within one TTL, not one that jumps.
func WithDrift(factor float64) Option {
	return func(c *config) { c.drift = factor }
}

// WithFencing gives exclusive claims a token that grows from grant to grant,
// whichever nodes made up the majority. It costs a second round: the highest
// token of the first one, rounded up, is written back to a majority before
// Acquire returns. Without it tokens are 0.
func WithFencing() Option {
	return func(c *config) { c.fencing = true }
}

// WithQuarantine sets the longest TTL that any client of these nodes uses, one
// minute by default; longer claims fail with core.ErrInvalid. A node that has
// started less than this ago may have forgotten holds that are still relied on,
// so its votes do not count until then. 0 turns that off, for nodes that
// write everything to disk before they answer (appendfsync always).
//
// It works where a node can tell how old it is (core.Node), as redisstore can. What a
// claim keeps after its release, by Claim.Keep for longer than this, is not
// protected.
func WithQuarantine(longest time.Duration) Option {
	return func(c *config) { c.quarantine = longest }
}

// WithObserver tells o of nodes: core.NodeOut for one that does not answer any more
// or was restarted, with the reason, and core.NodeBack for one that counts again. It
// is found out by the calls that are made, so nothing is told while nothing is
// locked. o may be the observer of the Locker; it must not block.
func WithObserver(o core.Observer) Option {
	return func(c *config) { c.observer, c.observed = o, true }
}

// check refuses options that cannot work.
func (c *config) check() error {
	switch {
	case c.timeout < time.Millisecond || c.timeout > 10*time.Second:
		return fmt.Errorf("redlock: a node timeout of %v: 1ms to 10s are allowed: %w", c.timeout, core.ErrInvalid)
	case !(c.drift >= 0 && c.drift < 1):
		return fmt.Errorf("redlock: a drift of %v: 0 to less than 1 is allowed: %w", c.drift, core.ErrInvalid)
	case c.observed && c.observer == nil:
		return fmt.Errorf("redlock: the observer is nil: %w", core.ErrInvalid)
	case c.quarantine < 0:
		return fmt.Errorf("redlock: a quarantine of %v: it cannot be negative: %w", c.quarantine, core.ErrInvalid)
	}
	return nil
}

// valid is how long a claim lasts after it was sent, as far as anybody may rely
// on it.
func (c *config) valid(ttl time.Duration) time.Duration {
	return ttl - time.Duration(c.drift*float64(ttl)) - leastDrift
}

// budget is how long one node may take over a claim with this TTL.
func (c *config) budget(ttl time.Duration) time.Duration {
	if ttl > 0 {
		return min(c.timeout, max(ttl/2, time.Millisecond))
	}
	return c.timeout
}
