package watermillmw

import (
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// Option is a setting of one middleware. The functions that make options panic if a value is not
// allowed.
type Option func(*config)

// config is the sum of the options of one middleware.
type config struct {
	name        string
	acquire     []core.AcquireOption
	also        []KeyFunc
	busy        Busy
	open        bool // run without the lock while the store is unavailable
	fingerprint KeyFunc
	handler     string // the scope of calls; empty: the router's name of the handler
}

// Acquire sets options of the acquire: TTL, KeepFor, MaxHold, and so on. Several Acquire add up,
// and a later value replaces an earlier one. core.Wait limits how long a message waits for a busy
// key, see Busy; 0 means a single attempt. The wait, 1 second and the time of the handler together
// have to be shorter than the time after which the broker delivers again.
//
// It is for Lock, which panics if a value is not allowed. once.Acquire sets the options with which
// Idempotent claims its runs.
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
// Each key is a value under the middleware's name, in the same name space as the first. Their
// order does not matter, a key may be named twice, and two messages that name the same keys do
// not deadlock. Several Also add up. It is for Lock, and panics if a key is nil.
func Also(keys ...KeyFunc) Option {
	keys = clone("Also", keys)
	return func(g *config) { g.also = append(g.also, keys...) }
}

// Fingerprint sets the value that has to be the same in all messages with one key. The default
// is the payload. It is for payloads with irrelevant differences, such as a trace ID. Messages for
// which of returns "" or an error fail. It is for Idempotent, and panics if of is nil.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("watermillmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of }
}

// HandlerName sets the handler's name in the calls of an Idempotent. The default is the name that
// the router has put into the message's context. With it a handler of the router can be
// renamed, and messages can come without the context of a router. Handlers of one service that
// share a name run a message once among them. It is for Idempotent, and panics if name is empty,
// has more than 512 bytes, is not valid UTF-8 or contains control characters.
func HandlerName(name string) Option {
	if _, err := sourceOf("name").Part(name); err != nil {
		panic(strings.Replace(err.Error(), ":", ": HandlerName:", 1))
	}
	return func(g *config) { g.handler = name }
}

// OnBusy sets the treatment of a message that cannot run now. The default is Reschedule. It
// panics if there is no such policy.
func OnBusy(b Busy) Option {
	if b < Reschedule || b > Fail {
		panic(fmt.Sprintf("watermillmw: OnBusy: there is no policy %d", b))
	}
	return func(g *config) { g.busy = b }
}

// FailOpen lets a Lock's messages run without the lock while the store is unavailable. The
// default is not to run them. A key that is busy or lost, and a closed Locker, are treated as
// without FailOpen. core.Unlocked(ctx) reports that to the handler, and core.RanUnlocked events
// count it. A grant whose reply was lost is cleaned up.
//
// Use FailOpen if two runs at once only cost time: a cache fill, or a report that is made
// twice. Do not use it if they cost money: a charge, or a booking.
func FailOpen() Option {
	return func(g *config) { g.open = true }
}

// configure returns the sum of the options. It panics if a value is not allowed.
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
