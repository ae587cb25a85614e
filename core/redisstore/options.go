package redisstore

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// format follows the prefix in all names, except with WithPlainKeys and
	// WithRedisson. So a process with another stored format does not read the entries.
	format      = "lk2:"
	plainPrefix = "lk1:" // for plain keys without WithPrefix
	maxPrefix   = 256    // bytes
)

// Option configures a Store.
type Option func(*config)

type config struct {
	prefix   string
	prefixed bool // set by WithPrefix
	plain    bool
	redisson bool
	proxied  bool
	silent   bool // set by WithoutScriptedWakeUps
	replicas int
	ackWait  time.Duration
	acks     bool // set by WithReplicas
}

// WithPrefix puts p before every key and channel name. By default names begin with
// "lk2:", the version of the stored format. With a prefix they begin with p and "lk2:".
// Plain keys begin with "lk1:" by default, and with p instead if it is set. Keys with
// WithRedisson have no prefix by default, and begin with p if it is set. The names of
// Redisson's channels and counters begin with Redisson's own prefix, which the key with
// p follows. Stores share locks if they share the server, the prefix and the form of
// keys.
//
// A prefix is valid UTF-8, has at most 256 bytes and contains no control characters.
// Braces are allowed only with WithPlainKeys or WithRedisson. Without these options the
// Store uses braces to mark the part of a key that determines the slot in a Cluster. For
// an invalid prefix New fails with store.ErrInvalid.
func WithPrefix(p string) Option {
	return func(c *config) { c.prefix, c.prefixed = p, true }
}

// WithPlainKeys stores a lock in the form that many programs use: one string that
// contains the owner and expires. The name of the string is the prefix and the key. The
// string is set only if it is absent, and extended or deleted only by its owner. So a
// Store can share locks with other clients that use this form, and can replace these
// clients one by one. README.md has a table of such clients. An acquire of a free key
// takes one SET. The first acquire of a taken key takes a SET and a script. Later
// acquires of that key usually take only a script.
//
// The string contains nothing but the owner. Shared, permit and fair claims, claims that
// join another owner, and claims that need a token or a record fail with
// store.ErrUnsupported. Waiters are not woken. A lease that was released before its
// acquire arrived is not refused. Two holds of one owner are one hold.
func WithPlainKeys() Option {
	return func(c *config) { c.plain = true }
}

// WithRedisson stores a lock like Redisson's RLock, as a hash with a counter, so that
// services in Java and in Go exclude each other. The name of the lock is the prefix of
// WithPrefix and the unchanged key. In Java, core.Key("order", "42") is
// redisson.getLock("order:42"). Holders in both languages re-enter, renew, wait and are
// woken. Waiters here poll while a Java spin lock holds the key, and after the release of
// a fair lock in Java.
//
// The Store then supports exclusive claims only. Shared, permit and fair claims, and
// claims with a record, fail with store.ErrUnsupported. A claim with Fenced gets a token
// from RFencedLock's counter, "redisson_lock_token:{name}", which does not expire. In a
// Cluster such a claim fails with store.ErrUnsupported if the name has braces that are
// not a hash tag. Other claims get no token. A lease that was released before its
// acquire arrived is not refused, and can hold the key for one TTL.
//
// Redisson's limits apply. Use a name for an RLock or for a read-write lock, never for
// both. Redisson admits readers and writers while an RLock is held. A hold of this
// Store excludes the waiters of a fair lock, but an acquire of this Store can overtake
// them. Tokens repeat if the counter is lost, by a failover or by RFencedLock's delete.
// If the server's clock is set back, the hold of a dead process lasts longer by the
// same amount.
func WithRedisson() Option {
	return func(c *config) { c.redisson = true }
}

// foreign reports whether keys are shared with other programs. Such keys are used
// unchanged, and support fewer features.
func (c *config) foreign() bool { return c.plain || c.redisson }

// WithProxy makes every acquire use a script, for a client of a proxy that spreads keys
// over several servers. It does not affect WithPlainKeys, because plain keys have no
// tokens. By default, an acquire of a free lock sends a SET and a TIME. Behind such a
// proxy the SET and the TIME can reach two servers, and tokens could then decrease. A
// script reads the time of the server that stores its key, but costs the server as much
// as three such SETs. Check reports whether the option is needed.
func WithProxy() Option {
	return func(c *config) { c.proxied = true }
}

// WithoutScriptedWakeUps makes the Store publish wake-ups after the script, for servers
// that do not run scripts with PUBLISH. By default the script publishes. With the option
// a wake-up takes one more round trip, and no lock is granted by message. If the process
// dies between script and PUBLISH, the waiter asks again after a pause. The option does
// not affect WithPlainKeys and WithRedisson.
func WithoutScriptedWakeUps() Option {
	return func(c *config) { c.silent = true }
}

// WithReplicas makes Acquire wait for at most timeout until n replicas have received
// the grant. By default Acquire does not wait for replicas. If fewer than n replicas
// have received the grant, the grant is released and Acquire fails with
// store.ErrUnavailable. If that release fails too, the error reports an unknown
// outcome. Acquires of the lease then fail until the grant has expired. n is at least
// 1. The timeout is at least 1 ms, is rounded down to milliseconds, and must be shorter
// than the client's read time-out.
//
// WithReplicas needs a *redis.Client or a *redis.ClusterClient. Extend and Release do
// not wait for replicas, except a Release with a record. If too few replicas have the
// record, the record stays saved, and the error reports an unknown outcome.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) { c.acks, c.replicas, c.ackWait = true, n, timeout }
}

func (c *config) check() error {
	switch {
	case len(c.prefix) > maxPrefix:
		return fmt.Errorf("redisstore: new: prefix has %d bytes (at most %d): %w", len(c.prefix), maxPrefix, store.ErrInvalid)
	case !utf8.ValidString(c.prefix):
		return fmt.Errorf("redisstore: new: prefix is not valid UTF-8: %w", store.ErrInvalid)
	case strings.ContainsFunc(c.prefix, unicode.IsControl):
		return fmt.Errorf("redisstore: new: prefix %q contains a control character: %w", c.prefix, store.ErrInvalid)
	case c.plain && c.redisson:
		return fmt.Errorf("redisstore: new: WithPlainKeys and WithRedisson exclude each other: %w", store.ErrInvalid)
	case !c.foreign() && strings.ContainsAny(c.prefix, "{}"):
		return fmt.Errorf("redisstore: new: prefix %q contains a brace: %w", c.prefix, store.ErrInvalid)
	case c.acks && (c.replicas < 1 || c.ackWait < time.Millisecond):
		return fmt.Errorf("redisstore: new: %d replicas within %s (at least 1 replica and 1 ms): %w", c.replicas, words.Duration(c.ackWait), store.ErrInvalid)
	}
	return nil
}
