package taskmw

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
	open        bool // where the store is down
	fingerprint KeyFunc
}

// Acquire sets how the lock is acquired: its TTL, KeepFor, and so on. Several add
// up, the later one wins. core.Wait sets the in-line wait, see Busy; without
// core.MaxHold, here or among the Locker's defaults, the lock is held for a TTL
// beyond the task's deadline at most, and then runs out within another.
//
// It is for Lock, which panics if a value is not allowed; how Idempotent claims
// its runs is set by once.Acquire.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("taskmw: Acquire: an option is nil")
		}
	}
	return func(g *config) { g.acquire = append(g.acquire, opts...) }
}

// Also locks more keys under the same lease, all or nothing: a transfer locks
// both accounts. Each key is a value under the middleware's name, in the same
// name space as the first. Neither their order nor a key that comes twice
// matters, and two tasks that name the same keys do not deadlock. Several add
// up. It is for Lock.
func Also(keys ...KeyFunc) Option {
	keys = clone("Also", keys)
	return func(g *config) { g.also = append(g.also, keys...) }
}

// Fingerprint sets what has to be the same in all tasks with one key, in place
// of type and payload, for payloads that differ in what does not matter, such
// as a trace ID. Tasks in which of finds nothing fail. It is for Idempotent.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("taskmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of }
}

// OnBusy sets what becomes of a task whose key is busy, Reschedule by default.
func OnBusy(b Busy) Option {
	if b < Reschedule || b > Fail {
		panic(fmt.Sprintf("taskmw: OnBusy: there is no policy %d", b))
	}
	return func(g *config) { g.busy = b }
}

// FailOpen lets a Lock's tasks run without the lock where the store cannot be asked,
// in place of a failure. A key that is busy or lost, and a Locker that is closed, are
// treated as ever. core.Unlocked(ctx) tells the handler, core.RanUnlocked events count it,
// and what the store may have granted unheard is cleaned up.
//
// It is right where two at once only cost time: a cache fill, a report that would be
// made twice. It is wrong where they cost money: a charge, a booking. It matters
// only where locks are in another store than the queues of asynq.
func FailOpen() Option {
	return func(g *config) { g.open = true }
}

// configure adds up the options.
func configure(what, name string, key KeyFunc, opts []Option) config {
	switch err := keys.CheckName(name); {
	case err != nil:
		panic("taskmw: " + what + ": " + err.Error())
	case key == nil:
		panic("taskmw: " + what + ": the key is nil")
	}
	g := config{name: name}
	for _, o := range opts {
		if o == nil {
			panic("taskmw: " + what + ": an option is nil")
		}
		o(&g)
	}
	return g
}
