package redisstore

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/store"
)

const (
	// format is in all names, behind the prefix: processes that store something else do not
	// take it for theirs.
	format      = "lk2:"
	plainPrefix = "lk1:" // of plain keys, where there is no other
	maxPrefix   = 256    // bytes
)

// Option configures a Store.
type Option func(*config)

type config struct {
	prefix   string
	prefixed bool // WithPrefix was given
	plain    bool
	redisson bool
	proxied  bool
	silent   bool // WithoutScriptedWakeUps was given
	replicas int
	ackWait  time.Duration
	acks     bool // WithReplicas was given
}

// WithPrefix puts p in front of every key and channel name, which begin with "lk2:"
// otherwise, the format of what is stored. Plain keys have p instead of "lk1:", and those
// of WithRedisson instead of nothing.
// Stores share locks if they share the server and the prefix. It
// may have at most 256 bytes and no control characters, and without
// WithPlainKeys or WithRedisson no braces, because the store marks the part of a key that
// chooses its slot in a cluster.
func WithPrefix(p string) Option {
	return func(c *config) { c.prefix, c.prefixed = p, true }
}

// WithPlainKeys stores a lock the way that many programs do: as one string, the
// prefix and the key, that holds the owner and expires. It is set only if it is
// absent, and extended or deleted only by its owner. So a Store can share locks
// with other clients of that scheme, and can replace them one by one; README.md has
// a table of such clients. A free key takes one SET, one that is taken mostly a
// script, and at first both.
//
// Such a string can carry no more: claims that are shared, permits, fair, that
// join another owner, or need a token or a record fail with
// store.ErrUnsupported, no waiter is woken, a lease that was released before it
// arrived is not refused, and two holds of one owner are one hold.
func WithPlainKeys() Option {
	return func(c *config) { c.plain = true }
}

// WithRedisson stores a lock as Redisson's RLock is stored, a hash that counts, so that
// services in Java and in Go exclude each other. A key is used verbatim as the name of the
// lock, behind WithPrefix; in Java, core.Key("order", "42") is
// redisson.getLock("order:42"). Holders of both kinds re-enter, renew, wait and are woken.
//
// It serves exclusive claims only: those that are shared, permits, fair, or have a record
// fail with store.ErrUnsupported. A claim with Fenced has a token of RFencedLock's counter,
// "redisson_lock_token:{name}", which has no end. Other claims have none. A lease that was
// released before it arrived is not refused: it can hold the key for one TTL.
//
// Redisson's limits apply. A name is of an RLock or of a read-write lock, never of both:
// Redisson lets readers and writers in beside any RLock. A waiter of a fair lock is kept out
// by a hold here, and can be overtaken. Tokens repeat where the counter is lost, by a failover
// or by RFencedLock's delete. After the server's clock was set back, the hold of a process that
// died lasts longer by as much.
func WithRedisson() Option {
	return func(c *config) { c.redisson = true }
}

// foreign reports whether keys are those of other programs too: they are used verbatim, and
// carry less.
func (c *config) foreign() bool { return c.plain || c.redisson }

// WithProxy is for a client of a proxy that spreads keys over several servers. Each lock is granted
// by a script, whose time is that of the server of its key. Without it a free lock takes a SET and
// a TIME, which may meet two servers there, and tokens could go back. It costs that server as much
// as three such SETs. Check finds out where it is needed.
func WithProxy() Option {
	return func(c *config) { c.proxied = true }
}

// WithoutScriptedWakeUps is for servers that run no script with PUBLISH in it. The Store publishes
// after the script, in one more round trip if someone waits. No lock is granted by message. If the
// process dies between the two, the waiter asks again after a pause. Plain keys and WithRedisson
// are as they are without it.
func WithoutScriptedWakeUps() Option {
	return func(c *config) { c.silent = true }
}

// WithReplicas makes Acquire wait, at most for timeout, until n replicas have
// seen the grant. If fewer did, the grant is given back and Acquire fails with
// store.ErrUnavailable. The timeout is in whole milliseconds and has to be
// shorter than the client's read timeout.
//
// It needs a *redis.Client or a *redis.ClusterClient. Extend and Release do not
// wait for replicas, but for a Release with a record: if too few have that, it
// is saved and the outcome is reported as unknown.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) { c.acks, c.replicas, c.ackWait = true, n, timeout }
}

// check refuses options that cannot work.
func (c *config) check() error {
	switch {
	case len(c.prefix) > maxPrefix:
		return fmt.Errorf("redisstore: prefix has %d bytes, at most %d are allowed: %w", len(c.prefix), maxPrefix, store.ErrInvalid)
	case !utf8.ValidString(c.prefix):
		return fmt.Errorf("redisstore: prefix is not valid UTF-8: %w", store.ErrInvalid)
	case strings.ContainsFunc(c.prefix, unicode.IsControl):
		return fmt.Errorf("redisstore: prefix %q contains a control character: %w", c.prefix, store.ErrInvalid)
	case c.plain && c.redisson:
		return fmt.Errorf("redisstore: WithPlainKeys and WithRedisson: one is allowed: %w", store.ErrInvalid)
	case !c.foreign() && strings.ContainsAny(c.prefix, "{}"):
		return fmt.Errorf("redisstore: prefix %q contains a brace: %w", c.prefix, store.ErrInvalid)
	case c.acks && (c.replicas < 1 || c.ackWait < time.Millisecond):
		return fmt.Errorf("redisstore: %d replicas within %v: %w", c.replicas, c.ackWait, store.ErrInvalid)
	}
	return nil
}
