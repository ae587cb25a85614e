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
	// format follows the prefix in all names, except with WithPlainKeys and
	// WithRedisson. So processes with another format do not misread the entries.
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
// WithRedisson have no prefix by default, and p if it is set. Stores share locks if
// they share the server and the prefix.
//
// A prefix has at most 256 bytes and no control characters. Without WithPlainKeys and
// WithRedisson it contains no braces, because the Store itself marks the part of a key
// that determines the slot in a Cluster. For any other prefix New fails with
// store.ErrInvalid.
func WithPrefix(p string) Option {
	return func(c *config) { c.prefix, c.prefixed = p, true }
}

// WithPlainKeys stores a lock in the form that many programs use: one string, named by
// the prefix and the key, that holds the owner and expires. The string is set only if
// it is absent, and extended or deleted only by its owner. So a Store can share locks
// with other clients of that scheme, and can replace these clients one by one;
// README.md has a table of such clients. An acquire of a free key takes one SET. An
// acquire of a taken key usually takes a script, and the first one takes both.
//
// The string holds the owner and nothing else. Shared, permit and fair claims, claims that
// join another owner, and claims that need a token or a record fail with
// store.ErrUnsupported. Waiters are not woken. A lease that was released before its
// acquire arrived is not refused, and two holds of one owner are one hold.
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
// It serves exclusive claims only. Shared, permit and fair claims, and claims with a
// record, fail with store.ErrUnsupported. A claim with Fenced gets a token from
// RFencedLock's counter, "redisson_lock_token:{name}", which does not expire. Other
// claims get none. A lease that was released before its acquire arrived is not refused,
// and can hold the key for one TTL.
//
// Redisson's limits apply. Use a name for an RLock or for a read-write lock, never for
// both, because Redisson admits readers and writers while an RLock is held. A hold of
// this Store excludes the waiters of a fair lock, and an acquire of this Store can
// overtake them. Tokens repeat if the counter is lost, by a failover or by RFencedLock's
// delete. If the server's clock is set back, the hold of a process that died lasts
// longer by the same amount.
func WithRedisson() Option {
	return func(c *config) { c.redisson = true }
}

// foreign reports whether keys are shared with other programs. Such keys are used
// unchanged, and support fewer features.
func (c *config) foreign() bool { return c.plain || c.redisson }

// WithProxy makes every acquire use a script, for a client of a proxy that spreads keys
// over several servers. A script reads the time of the server that stores its key. The
// default for a free lock is a SET and a TIME. Behind such a proxy they may reach two
// servers, and tokens could then decrease. A script costs the server as much as three
// such SETs. Check reports whether the option is needed.
func WithProxy() Option {
	return func(c *config) { c.proxied = true }
}

// WithoutScriptedWakeUps publishes wake-ups after the script, for servers that do not
// run scripts with PUBLISH. By default the script publishes. The option takes one more
// round trip if someone waits, and no lock is granted by message. If the process dies
// between script and PUBLISH, the waiter asks again after a pause. The option does not
// affect plain keys and WithRedisson.
func WithoutScriptedWakeUps() Option {
	return func(c *config) { c.silent = true }
}

// WithReplicas makes Acquire wait for at most timeout until n replicas have received
// the grant. By default Acquire does not wait for replicas. If fewer than n have
// received it, the grant is released and Acquire fails with store.ErrUnavailable. The
// timeout is in whole milliseconds and must be shorter than the client's read time-out.
//
// It needs a *redis.Client or a *redis.ClusterClient. Extend and Release do not wait
// for replicas, except a Release with a record. If too few replicas have the record,
// the record stays saved and the outcome is reported as unknown.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) { c.acks, c.replicas, c.ackWait = true, n, timeout }
}

// check returns an error for invalid options.
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
		return fmt.Errorf("redisstore: new: %d replicas within %v (at least 1 replica and 1 ms): %w", c.replicas, c.ackWait, store.ErrInvalid)
	}
	return nil
}
