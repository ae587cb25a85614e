package watermillmw

import (
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// Option is a setting of one middleware. The functions that make options panic if a
// value is not allowed.
type Option func(*config)

// config holds the options of one middleware.
type config struct {
	name        string
	acquire     []core.AcquireOption
	also        []KeyFunc
	busy        Busy
	open        bool // run without the lock while the store is unavailable
	fingerprint KeyFunc
	handler     string // the scope of calls; "" means the name of the router's handler
}

// Acquire sets options of the acquire: TTL, KeepFor, MaxHold, and so on. Several
// Acquire add up, and a later value replaces an earlier value. core.Wait limits the
// time for which a message waits for a busy key; see Busy. 0 means a single attempt.
// The wait, 1 second and the time of the handler together have to be shorter than the
// time after which the broker delivers again.
//
// Acquire is for Lock, which panics if a value is not allowed. once.Acquire sets the
// options with which Idempotent claims its runs.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("watermillmw: Acquire: an option is nil")
		}
	}
	return func(g *config) { g.acquire = append(g.acquire, opts...) }
}

// Also locks more keys under the same lease, all or nothing. For example, a transfer
// locks both accounts. Each key is a value under the middleware's name, as the first
// key is. The order of the keys does not matter, and a key may be repeated. Two
// messages with the same keys do not deadlock. Several Also add up. Also is for Lock,
// and panics if a key is nil.
func Also(keys ...KeyFunc) Option {
	keys = clone("Also", keys)
	return func(g *config) { g.also = append(g.also, keys...) }
}

// Fingerprint sets the value that has to be the same in all messages with one key. The
// default is the payload. Fingerprint is for payloads with irrelevant differences, such
// as a trace ID. If the function of returns "" or an error, the message fails.
// Fingerprint is for Idempotent, and panics if of is nil.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("watermillmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of }
}

// HandlerName sets the handler's name in the calls of an Idempotent. The default is the
// name that the router has put into the message's context. With HandlerName a handler
// of the router can be renamed, and messages can lack the context of a router. If
// several handlers have the same HandlerName, only one of them runs each message.
// HandlerName is for Idempotent, and panics if name is empty, has more than 512 bytes,
// is not valid UTF-8 or contains control characters.
func HandlerName(name string) Option {
	if _, err := sourceOf("name").Part(name); err != nil {
		panic(strings.Replace(err.Error(), ":", ": HandlerName:", 1))
	}
	return func(g *config) { g.handler = name }
}

// OnBusy sets the treatment of a message that cannot run now. The default is
// Reschedule. OnBusy panics if b is not one of the policies.
func OnBusy(b Busy) Option {
	if b < Reschedule || b > Fail {
		panic(fmt.Sprintf("watermillmw: OnBusy: there is no policy %d", b))
	}
	return func(g *config) { g.busy = b }
}

// FailOpen lets a Lock's messages run without the lock while the store is unavailable.
// By default they do not run. FailOpen does not apply to a busy key, a lost outer lock,
// a closed Locker, or a message whose context is done. The handler learns by
// core.Unlocked(ctx) that it runs without the lock. Each such message notifies the
// Locker's observer of core.RanUnlocked. If the store has granted the lock and the
// reply was lost, the grant is released in the background.
//
// Use FailOpen if two simultaneous runs cost only time, such as a cache fill or a
// report. Do not use FailOpen if such runs cost money, such as a charge or a booking.
func FailOpen() Option {
	return func(g *config) { g.open = true }
}

// configure applies the options. It panics if a value is not allowed.
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
