package core

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/leaseid"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

const (
	defaultWaitingPerKey = 1 << 14
	defaultWaiting       = 1 << 16
)

// Option is a setting of a Locker, given to New.
type Option func(*config)

type config struct {
	defaults      []AcquireOption
	events        events
	perKey, total int   // limits of the waiters not in front, in one queue and in all; 0: no limit
	card          *Card // nil without WithCard
	clock         clock.Clock
}

// WithDefaults sets default options for every acquire of this Locker. The options of a
// call take precedence over the defaults.
func WithDefaults(opts ...AcquireOption) Option {
	return func(c *config) { c.defaults = append(c.defaults, opts...) }
}

// WithObserver sets the observer of all events. By default the Locker logs losses, as
// New describes. An observer replaces this log. If o is nil, the Locker has no observer
// and logs no losses. Observers combines several observers. If o contains a nil
// pointer, New fails with ErrInvalid.
func WithObserver(o Observer) Option {
	return func(c *config) { c.events = events{o} }
}

// WithMaxWaiting limits the number of waiting callers of this Locker: perKey for one
// key, total for all keys together. The first caller of a key does not count, and
// neither do callers that ask the store beside the first. The defaults are 16,384 and
// 65,536. The limits bound the memory if callers arrive faster than their keys become
// free. 0 means no limit. A caller beyond a limit fails with ErrBusy at once. Readers
// and permits that asked the store at the same time and were refused wait in the queue
// again. So up to 31 callers for each key can wait beyond the limits. With a negative
// limit New fails with ErrInvalid.
func WithMaxWaiting(perKey, total int) Option {
	return func(c *config) { c.perKey, c.total = perKey, total }
}

// WithCard makes the Locker write a card, a description of its process, to the store.
// By default there is no card. The card shows operators the process of a hold, and the
// keys that the process has held or waited for longer than 5 s. If the card has no room
// for all of these keys, it has the oldest ones. Only the fields Service, Version and
// Trace of c may be set. The Locker sets the other fields.
//
// A separate goroutine writes the card at once and then every 10 s, each time for 30 s.
// No lock waits for a write. A write takes at most 3 s. A failed write is not reported,
// and the next write follows at the usual time. The card expires 30 s after the last
// successful write. Close stops the goroutine and removes the card. The card of a
// killed process expires within 30 s. A Locker with a card must be closed.
//
// New fails with ErrUnsupported if the store has no cards (see store.Cards). It fails
// with ErrInvalid if another field of c is set, or if Service or Version is not
// printable UTF-8 of at most 128 bytes.
func WithCard(c Card) Option {
	return func(cfg *config) { cfg.card = &c }
}

// configure applies the options of a Locker and checks them. New checks the default
// options of acquires later, because the store decides which are allowed.
func configure(opts []Option) (config, error) {
	c := config{events: events{lossLog{SlogObserver(nil)}}, perKey: defaultWaitingPerKey, total: defaultWaiting, clock: clock.System}
	for _, o := range opts {
		if o == nil {
			return config{}, fmt.Errorf("an option is nil: %w", ErrInvalid)
		}
		o(&c)
	}
	if c.perKey < 0 || c.total < 0 {
		return config{}, fmt.Errorf("WithMaxWaiting(%d, %d) is out of range (at least 0): %w", c.perKey, c.total, ErrInvalid)
	}
	if o := c.events.observer; o != nil && isNil(o) {
		return config{}, fmt.Errorf("observer is nil: %w", ErrInvalid)
	}
	return c, nil
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// AcquireOption is a setting of one acquire. If the value of an option is not allowed,
// the acquire fails with ErrInvalid before anything is sent.
type AcquireOption func(*request)

// request has the settings of one acquire, filled by its options.
type request struct {
	terms
	key    string
	keys   []string // the keys of the fields key and also, sorted and without duplicates
	one    [1]string
	also   []string
	name   string
	ttl    time.Duration
	wait   time.Duration // the maximum wait for a busy key; 0: no wait, negative: until ctx is done
	pace   retry.Policy
	weight int64
	limit  int64
	fair   bool
	fenced bool
	bad    error  // the first error of an option
	report *Event // set by adapter.Report
	waiter waiter // reused with the request: an acquire needs one waiter at a time
}

// TTL sets the time for which the lease lasts without an extension, from 100ms to 24
// days. The default is 30s. After the death of the holder's process, the key is free
// within the TTL. The watchdog extends the lease every third of the TTL. The time limit
// of a call to the store is a sixth of the TTL, at least 20 ms and at most 2 seconds.
func TTL(d time.Duration) AcquireOption { return func(r *request) { r.ttl = d } }

// NoRenew makes a lease that the watchdog does not extend. Unless Extend is called, the
// lease expires one TTL after the grant.
func NoRenew() AcquireOption { return func(r *request) { r.noRenew = true } }

// MaxHold stops the extensions of the lease after d, counted from the grant. So a hung
// handler does not block a key forever. The default is no limit. After d the lease
// expires within its TTL, and its context is done with cause ErrLost.
func MaxHold(d time.Duration) AcquireOption {
	return func(r *request) {
		r.maxHold = d
		if d <= 0 {
			r.refuse("MaxHold %s is out of range (more than 0)", words.Duration(d))
		}
	}
}

// Wait limits how long Acquire waits for a busy key, in addition to ctx. The default is
// to wait until ctx is done; 0 means a single attempt. A request that is in flight when
// d has passed is still completed.
func Wait(d time.Duration) AcquireOption {
	return func(r *request) {
		r.wait = d
		if d < 0 {
			r.refuse("Wait %s is out of range (at least 0)", words.Duration(d))
		}
	}
}

// Retry sets the pauses between the attempts while wake-ups are unavailable, and the
// maximum number of attempts. The default is retry.LockWait. Attempts after a wake-up
// count too. After the last attempt the acquire gives up with ErrBusy. If p has no
// limit of attempts, the pauses do not grow while the key changes hands continuously.
func Retry(p retry.Policy) AcquireOption { return func(r *request) { r.pace = p } }

// Shared makes the lease a reader. Readers of a key hold it together, and exclude
// writers, which are the exclusive leases. A reader gets no fencing token. Readers of
// one process ask the store at the same time, as long as the store grants their claims.
// No reader overtakes an earlier writer of the same process.
//
// A reader that is acquired under a writer's context re-enters the writer's hold. The
// reader's context is done when the writer is released. To downgrade from writer to
// reader, acquire the reader under ContextWithOwner with the writer's Owner, and then
// release the writer.
func Shared() AcquireOption {
	return func(r *request) { r.setMode(ModeShared, 1, store.All) }
}

// Permits takes n permits of a semaphore. The parameter of is the number of all its
// permits, where 1 <= n <= of < store.All. All acquires of one semaphore must pass the
// same second argument. A lease with Permits never re-enters, and gets no fencing
// token. Callers of one process ask the store at the same time, as long as the store
// grants their claims. With Fair they ask one at a time.
func Permits(n, of int) AcquireOption {
	return func(r *request) {
		r.setMode(ModePermits, int64(n), int64(of))
		if n < 1 || n > of || int64(of) >= store.All {
			r.refuse("Permits(%d, %d) is out of range (1 <= n <= of < %d)", n, of, store.All)
		}
	}
}

func (r *request) setMode(m Mode, weight, limit int64) {
	if r.mode != ModeExclusive && r.mode != m {
		r.refuse("Shared and Permits exclude each other")
	}
	r.mode, r.weight, r.limit = m, weight, limit
}

// Fair serves the claims of all processes in order of arrival. Without Fair, only the
// callers of one process are served in order of arrival. A claim arrives at the store
// when its caller is the first in the queue of its process. The order covers only the
// fair claims of a key: an unfair claim can overtake fair claims.
func Fair() AcquireOption { return func(r *request) { r.fair = true } }

// Also adds keys to the lease. The lease takes either all of its keys or none. It takes
// the keys in sorted order, so that leases over several keys do not deadlock each
// other. All options of the acquire apply to all keys.
func Also(keys ...string) AcquireOption {
	return func(r *request) { r.also = append(r.also, keys...) }
}

// KeepFor keeps the key taken for at least d after the grant, even if the lease is
// released earlier. So a scheduled job that several replicas start runs once. KeepFor
// does not make the lease itself last longer. It has no effect if the store no longer
// has the lease at its release. Examples are a loss, and an expiry by NoRenew or
// MaxHold.
func KeepFor(d time.Duration) AcquireOption {
	return func(r *request) {
		r.keep = d
		if d < 0 || d > maxTTL {
			r.refuse("KeepFor %s is out of range (0 to 24 days)", words.Duration(d))
		}
	}
}

// Fenced requires a fencing token. The acquire fails with ErrUnsupported if the store
// cannot provide one. Fenced applies to exclusive leases only.
func Fenced() AcquireOption { return func(r *request) { r.fenced = true } }

// maxName is the length of the longest Name, in bytes.
const maxName = 64

// Name sets the lock's static label in messages and events: 1 to 64 letters, digits,
// '.', '_' and '-'. The default is the part of the key before the first ':', if that
// part is a valid label. Otherwise the default is "lock". It is also "lock" for a key
// without ':', because such a key may consist of data only.
func Name(name string) AcquireOption {
	return func(r *request) {
		r.name = name
		if !isLabel(name) {
			r.refuse("Name is not of the form [A-Za-z0-9._-]+ (at most %d bytes)", maxName)
		}
	}
}

// report implements adapter.Report.
func report(e *Event) AcquireOption { return func(r *request) { r.report = e } }

func (r *request) refuse(format string, args ...any) {
	if r.bad == nil {
		r.bad = fmt.Errorf(format, args...)
	}
}

func (r *request) free() {
	*r = request{}
	requests.Put(r)
}

func (r *request) tryOnce() { r.wait = 0 }

// newWaiter returns the waiter of a caller that wants c. It reuses the waiter of the
// acquire's previous key.
func (r *request) newWaiter(c *store.Claim) *waiter {
	weight := c.Weight
	if c.Fair && r.mode == ModePermits {
		weight = c.Limit // asks alone, because simultaneous requests can arrive in another order
	}
	r.waiter = waiter{
		key: c.Key, weight: weight, limit: c.Limit,
		claimed: c.Weight, fair: c.Fair, run: c.Record != nil,
		tryOnly: r.wait == 0,
		wide:    r.mode == ModeShared && !c.Fair,
		waiterPassing: waiterPassing{
			accepts: r.usual && r.wait != 0 && r.record == nil && c.Via == "",
			ttl:     c.TTL, minToken: c.MinToken,
		},
	}
	return &r.waiter
}

func (r *request) ofRun(begin *store.Record) { r.record, r.mode = begin, ModeRun }

// check implements adapter.Check.
func (l *Locker) check(opts ...AcquireOption) (wait time.Duration, err error) {
	r, err := l.request("check", opts)
	if err != nil {
		return 0, err
	}
	return r.wait, l.serves(r)
}

// limits implements adapter.Limits.
func (l *Locker) limits(opts ...AcquireOption) (ttl, maxHold time.Duration, err error) {
	r, err := l.request("check", opts)
	if err != nil {
		return 0, 0, err
	}
	return r.ttl, r.maxHold, nil
}

// serves asks the store whether it serves claims of this request.
func (l *Locker) serves(r *request) error {
	s, ok := l.store.(store.Checker)
	if !ok {
		return nil
	}
	c := r.claim("check", leaseid.New(l.process))
	c.Keep = r.keep
	if err := s.CheckClaim(c); err != nil {
		return fmt.Errorf("core: acquire %q: %w", r.name, err)
	}
	return nil
}

// requests keeps requests for reuse after their acquire has returned. By then nothing
// refers to the request, and no queue refers to the request's waiter.
var requests = sync.Pool{New: func() any { return new(request) }}

// request applies and checks the options of an acquire, and returns its request.
func (l *Locker) request(key string, opts []AcquireOption) (*request, error) {
	r := requests.Get().(*request)
	r.key, r.ttl, r.wait, r.pace = key, defaultTTL, -1, retry.LockWait
	r.mode, r.weight, r.limit = ModeExclusive, store.All, store.All
	for _, some := range [...][]AcquireOption{l.config.defaults, opts} {
		for _, o := range some {
			if o == nil {
				r.refuse("an option is nil")
				continue
			}
			o(r)
		}
	}
	b, ok := l.store.(store.Braced)
	if err := r.check(ok && b.Braces()); err != nil {
		return nil, fmt.Errorf("core: acquire %q: %w", r.name, fmt.Errorf("%w: %w", err, ErrInvalid))
	}
	r.usual = len(r.also) == 0 && r.weight == store.All && !r.fair && !r.noRenew && r.keep == 0
	r.keys = append(append(r.one[:0], key), r.also...)
	slices.Sort(r.keys)
	r.keys = slices.Compact(r.keys)
	return r, nil
}

func (r *request) check(braces bool) error {
	if before, _, found := strings.Cut(r.key, ":"); found && r.name == "" {
		r.name = before
	}
	if !isLabel(r.name) {
		r.name = "lock"
	}
	if r.bad != nil {
		return r.bad
	}
	if err := checkKey(r.key, braces); err != nil {
		return err
	}
	for _, k := range r.also {
		if err := checkKey(k, braces); err != nil {
			return fmt.Errorf("Also: %w", err)
		}
	}
	if r.ttl < minTTL || r.ttl > maxTTL {
		return fmt.Errorf("TTL %s is out of range (%s to 24 days)", words.Duration(r.ttl), words.Duration(minTTL))
	}
	r.ttl -= r.ttl % time.Millisecond
	if r.fenced && r.mode != ModeExclusive {
		return errors.New("Fenced is for exclusive leases")
	}
	if err := r.pace.Validate(); err != nil {
		return fmt.Errorf("Retry: %w", err)
	}
	return nil
}

// isLabel reports whether s is of the form [A-Za-z0-9._-]+, and has at most maxName
// bytes.
func isLabel(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// claim returns the claim of this request for one of its keys.
func (r *request) claim(key, id string) store.Claim {
	c := store.Claim{Key: key, Owner: id, Lease: id, Weight: r.weight, Limit: r.limit, TTL: r.ttl, Fair: r.fair, Record: r.record}
	if r.fenced {
		c.MinToken = 1
	}
	return c
}
