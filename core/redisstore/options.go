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
	// format is in all names, after the prefix, so that processes with another format do
	// not take the entries for theirs.
	format      = "lk2:"
	plainPrefix = "lk1:" // of plain keys without WithPrefix
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

// WithPrefix puts p before every key and channel name. By default they begin with
// "lk2:", the stored format, and with a prefix they begin with p and "lk2:". Plain keys
// begin with "lk1:" by default, and with p instead. The keys of WithRedisson have no
// prefix by default, and p with one. Stores share locks if they share the server and the
// prefix.
//
// A prefix has at most 256 bytes and no control characters. Without WithPlainKeys and
// WithRedisson it has no braces, because the store marks the part of a key that chooses
// its slot in a cluster. For another prefix New fails with store.ErrInvalid.
func WithPrefix(p string) Option {
	return func(c *config) { c.prefix, c.prefixed = p, true }
}

// WithPlainKeys stores a lock the way that many programs do: as one string, named by the
// prefix and the key, that holds the owner and expires. It is set only if it is absent,
// and extended or deleted only by its owner. So a Store can share locks with other
// clients of that scheme, and can replace them one by one; README.md has a table of such
// clients. An acquire takes one SET for a free key, usually a script for a taken one,
// and at first both.
//
// Such a string can carry no more. Shared, permit and fair claims, claims that join
// another owner, and claims that need a token or a record fail with
// store.ErrUnsupported. No waiter is woken. A lease that was released before it arrived
// is not refused, and two holds of one owner are one hold.
func WithPlainKeys() Option {
	return func(c *config) { c.plain = true }
}

// WithRedisson stores a lock as Redisson's RLock is stored, a hash that counts, so that
// services in Java and in Go exclude each other. A key is used verbatim as the name of
// the lock, after the prefix of WithPrefix; in Java, core.Key("order", "42") is
// redisson.getLock("order:42"). Holders of both kinds re-enter, renew, wait and are
// woken. Beside a spin lock, and after the release of a fair lock in Java, waiters here
// poll.
//
// It serves exclusive claims only. Shared, permit and fair claims, and claims with a
// record, fail with store.ErrUnsupported. A claim with Fenced has a token of
// RFencedLock's counter, "redisson_lock_token:{name}", which does not expire. Other
// claims have none. A lease that was released before it arrived is not refused: it can
// hold the key for one TTL.
//
// Redisson's limits apply. A name belongs to an RLock or to a read-write lock, never to
// both: Redisson lets readers and writers in beside any RLock. A waiter of a fair lock
// is kept out by a hold here, and can be overtaken. Tokens repeat if the counter is
// lost, by a failover or by RFencedLock's delete. After the server's clock was set back,
// the hold of a process that died lasts longer by as much.
func WithRedisson() Option {
	return func(c *config) { c.redisson = true }
}

// foreign reports whether keys are shared with other programs: such keys are used
// verbatim, and carry less.
func (c *config) foreign() bool { return c.plain || c.redisson }

// WithProxy grants each lock by a script, for a client of a proxy that spreads keys over
// several servers. A script has the time of the server of its key. The default for a
// free lock is a SET and a TIME, which may meet two servers behind such a proxy, and
// then tokens could go back. A script costs the server as much as three such SETs. Check
// finds out where the option is needed.
func WithProxy() Option {
	return func(c *config) { c.proxied = true }
}

// WithoutScriptedWakeUps publishes wake-ups after the script, for servers that run no
// script with PUBLISH in it. By default the script publishes. The option takes one more
// round trip if someone waits, and no lock is granted by message. If the process dies
// between the two, the waiter asks again after a pause. Plain keys and WithRedisson are
// not affected.
func WithoutScriptedWakeUps() Option {
	return func(c *config) { c.silent = true }
}

// WithReplicas makes Acquire wait for at most timeout until n replicas have seen the
// grant. By default Acquire does not wait for replicas. If fewer than n have seen it,
// the grant is released and Acquire fails with store.ErrUnavailable. The timeout is in
// whole milliseconds and has to be shorter than the client's read timeout.
//
// It needs a *redis.Client or a *redis.ClusterClient. Extend and Release do not wait for
// replicas. The exception is a Release with a record: if too few replicas have the
// record, it is saved and the outcome is reported as unknown.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) { c.acks, c.replicas, c.ackWait = true, n, timeout }
}

// check returns an error for options that cannot work.
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
