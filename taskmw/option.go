package taskmw

import (
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// Option is a setting of one middleware. A value that is not allowed causes a panic.
type Option func(*config)

// config holds the options of one middleware.
type config struct {
	name        string
	acquire     []core.AcquireOption
	also        []KeyFunc
	busy        Busy
	open        bool // let tasks run if the store is unavailable
	fingerprint KeyFunc
}

// Acquire sets the options with which Lock acquires: TTL, KeepFor and so on. Several
// Acquires add up, and the later option wins. core.Wait sets the in-line wait, see
// Busy. Without core.MaxHold, here or among the Locker's defaults, the lock is extended
// for at most a TTL beyond the task's deadline, and then expires within another TTL.
//
// Acquire is an option of Lock, which panics if a value is not allowed. once.Acquire
// sets the options with which Idempotent claims its runs.
func Acquire(opts ...core.AcquireOption) Option {
	opts = append([]core.AcquireOption(nil), opts...)
	for _, o := range opts {
		if o == nil {
			panic("taskmw: Acquire: an option is nil")
		}
	}
	return func(g *config) { g.acquire = append(g.acquire, opts...) }
}

// Also makes Lock lock more keys under the same lease, all or nothing. For example, a
// transfer locks both accounts. Each key is a value under the middleware's name, in the
// same name space as the first key. The order of the keys does not matter, and a key
// may be repeated. Two tasks with the same keys do not deadlock. Several Alsos add up.
// Also is an option of Lock.
func Also(keys ...KeyFunc) Option {
	keys = clone("Also", keys)
	return func(g *config) { g.also = append(g.also, keys...) }
}

// Fingerprint sets the parts of a task that have to be the same in all tasks with one
// key. The default is type and payload. Fingerprint is for payloads that differ in
// unimportant fields, such as a trace ID. If the function of returns "", the task is
// archived. An error of this function has the same effect as an error of a KeyFunc.
// Fingerprint is an option of Idempotent.
func Fingerprint(of KeyFunc) Option {
	if of == nil {
		panic("taskmw: Fingerprint: the function is nil")
	}
	return func(g *config) { g.fingerprint = of }
}

// OnBusy sets the policy for a task whose key is busy. The default is Reschedule.
func OnBusy(b Busy) Option {
	if b < Reschedule || b > Fail {
		panic(fmt.Sprintf("taskmw: OnBusy: %d is not a policy", b))
	}
	return func(g *config) { g.busy = b }
}

// FailOpen lets a Lock's tasks run without the lock if the store is unavailable. By
// default they fail. FailOpen does not apply to a busy key, a lost outer lock, a closed
// Locker, or a task whose context is done. In the handler, core.Unlocked(ctx) reports
// whether the task runs without the lock. Each such task notifies the Locker's observer
// of core.RanUnlocked. If the store has granted the lock and the reply was lost, the
// grant is released in the background.
//
// Use FailOpen if two simultaneous tasks cost only time, such as a cache fill or a
// report. Do not use FailOpen if such tasks cost money, such as a charge or a booking.
// FailOpen has an effect only if the locks and the queues of asynq are in different
// stores.
func FailOpen() Option {
	return func(g *config) { g.open = true }
}

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
