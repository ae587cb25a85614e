package redlock

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/words"
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
	unhealed   bool          // for tests: a claim is not restored at nodes that lack it
}

// WithNodeTimeout sets the time after which the other nodes may decide without a node
// that has not answered. The default is 50 ms; 1 ms to 10 s are allowed.
//
// The time-out does not limit a call. If the nodes that have answered cannot decide, a
// call waits for the other nodes until its ctx is done, for at most Limit. The time of
// a few round trips to the farthest node is sufficient. If the other nodes are split, a
// frozen node delays an Acquire by this time-out. It can delay an Extend or a Release
// until ctx is done or Limit has passed. While a node lacks the holder's claim, a
// refusal can take a few time-outs.
func WithNodeTimeout(d time.Duration) Option {
	return func(c *config) { c.timeout = d }
}

// WithDrift sets the part of the TTL that is subtracted from the validity of a grant,
// because clocks run at different rates. The default is 0.01; 0 to less than 1 is
// allowed. Another 2 ms are always subtracted. A factor of 0.01 covers two clocks that
// drift apart by a hundredth of the TTL within one TTL. The factor does not cover a
// clock that jumps.
func WithDrift(factor float64) Option {
	return func(c *config) { c.drift = factor }
}

// WithFencing assigns exclusive claims a token that grows from grant to grant,
// whichever nodes form the majority. Without this option tokens are 0. The option costs
// each new grant a second round of requests. Before Acquire returns, the highest token
// of the first round is rounded up and written back to a majority.
func WithFencing() Option {
	return func(c *config) { c.fencing = true }
}

// WithQuarantine sets the longest TTL that any client of these nodes uses. The default
// is one minute. A claim with a longer TTL fails with store.ErrInvalid, unless no node
// is a store.Node.
//
// A node that started less than this time ago may have forgotten holds that have not
// expired. So its votes do not count until it is older. 0 turns the quarantine off, for
// nodes that write everything to disk before they answer (appendfsync always).
//
// The option needs nodes that know their age (store.Node), such as redisstore. It does
// not cover a key that stays taken by Claim.Keep for longer than this time after its
// release. Such a key can be free too early if nodes restart.
func WithQuarantine(longest time.Duration) Option {
	return func(c *config) { c.quarantine = longest }
}

// WithObserver notifies o when a node stops counting or counts again. The default is no
// observer. If the node does not answer any more or was restarted, o gets core.NodeOut
// with the reason. When the node counts again, o gets core.NodeBack. Only calls of the
// Store detect these changes, so o is not notified while nothing is locked. o may be the
// Locker's observer. o must not block.
func WithObserver(o core.Observer) Option {
	return func(c *config) { c.observer, c.observed = o, true }
}

func (c *config) check() error {
	switch {
	case c.timeout < time.Millisecond || c.timeout > 10*time.Second:
		return fmt.Errorf("redlock: new: node timeout %s is out of range (1 ms to 10 s): %w", words.Duration(c.timeout), store.ErrInvalid)
	case !(c.drift >= 0 && c.drift < 1):
		return fmt.Errorf("redlock: new: drift %v is out of range (0 to less than 1): %w", c.drift, store.ErrInvalid)
	case c.observed && c.observer == nil:
		return fmt.Errorf("redlock: new: observer is nil: %w", store.ErrInvalid)
	case c.quarantine < 0:
		return fmt.Errorf("redlock: new: quarantine %s is out of range (at least 0): %w", words.Duration(c.quarantine), store.ErrInvalid)
	}
	return nil
}

// valid returns the time for which a claim may be trusted after it was sent.
func (c *config) valid(ttl time.Duration) time.Duration {
	return ttl - time.Duration(c.drift*float64(ttl)) - leastDrift
}
