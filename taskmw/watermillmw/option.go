package watermillmw

import (
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// Option is a setting of one middleware. Those that are given a bad value panic.
type Option func(*config)

// config is what the options of one middleware add up to.
type config struct {
	name        string
	acquire     []core.AcquireOption
	also        []KeyFunc
	busy        Busy
	open        bool // where the store is unavailable
	fingerprint KeyFunc
}

// Acquire sets how the lock is acquired: its TTL, KeepFor, MaxHold, and so on. Several add up,
// the later one wins. core.Wait sets for how long a message waits for a busy key, see Busy:
// the wait, 1 second and the time of the handler together have to be shorter than the time
// after which the broker delivers again.
//
// It is for Lock, which panics if a value is not allowed; how Idempotent claims its runs is set
// by once.Acquire.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("watermillmw: Acquire: an option is nil")
		}
	}
	return func(g *config) { g.acquire = append(g.acquire, opts...) }
}

// Also locks more keys under the same lease, all or nothing: a transfer locks both accounts.
// Each key is a value under the middleware's name, in the same name space as the first. Neither
// their order nor a key that comes twice matters, and two messages that name the same keys do
// not deadlock. Several add up. It is for Lock.
func Also(keys ...KeyFunc) Option {
	keys = clone("Also", keys)
	return func(g *config) { g.also = append(g.also, keys...) }
}

// Fingerprint sets what has to be the same in all messages with one key, in place of the
// payload, for payloads that differ in what does not matter, such as a trace ID. Messages in
// which of finds nothing fail. It is for Idempotent.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("watermillmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of }
}

// OnBusy sets what becomes of a message that cannot run now, Reschedule by default.
func OnBusy(b Busy) Option {
	if b < Reschedule || b > Fail {
		panic(fmt.Sprintf("watermillmw: OnBusy: there is no policy %d", b))
	}
	return func(g *config) { g.busy = b }
}

// FailOpen lets a Lock's messages run without the lock where the store is unavailable. A key
// that is busy or lost, and a Locker that is closed, are treated as ever. core.Unlocked(ctx)
// reports that to the handler, core.RanUnlocked events count it, and what the store may have
// granted unheard is cleaned up.
//
// It is right where two at once only cost time: a cache fill, a report that would be made
// twice. It is wrong where they cost money: a charge, a booking.
func FailOpen() Option {
	return func(g *config) { g.open = true }
}

// configure adds up the options.
func configure(what, name string, key KeyFunc, opts []Option) *config {
	switch err := keys.CheckName(name); {
	case err != nil:
		panic("watermillmw: " + what + ": " + err.Error())
	case key == nil:
		panic("watermillmw: " + what + ": the key is nil")
	}
	g := &config{name: name}
	for _, o := range opts {
		if o == nil {
			panic("watermillmw: " + what + ": an option is nil")
		}
		o(g)
	}
	return g
}
