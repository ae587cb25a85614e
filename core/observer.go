package core

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
)

// Observer receives the events of locks, for metrics, logs and traces.
//
// Observe must be safe for concurrent use, and must return quickly, because acquires
// and releases wait for it. The Locker holds no mutex during the call. ctx can be done.
// For an event of an acquire or a lease, ctx has the values of the context of the
// acquire or of the release. For a claim that is released in the background, ctx has no
// values. A panic in Observe does not affect the lock, and is logged to slog.Default as
// an error.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Observers returns an Observer that notifies the observers in o in order. If an
// observer panics, the others are still notified. Nil observers are ignored.
func Observers(o ...Observer) Observer {
	return fanOut(slices.DeleteFunc(slices.Clone(o), func(x Observer) bool { return x == nil }))
}

type fanOut []Observer

func (f fanOut) Observe(ctx context.Context, e Event) {
	for _, o := range f {
		notify(ctx, o, e)
	}
}

// notify notifies o of e. It recovers a panic of o. On a goroutine of the kit the panic
// would end the program, and on a caller's goroutine it would leave a lock held.
func notify(ctx context.Context, o Observer, e Event) {
	defer func() {
		if p := recover(); p != nil {
			slog.Default().ErrorContext(ctx, "lockkit: observer panicked", "event", e.Kind.String(), "lock", e.Name,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	o.Observe(ctx, e)
}

// lossLog is the observer of a Locker without WithObserver. It is notified only of
// losses.
type lossLog struct{ Observer }

// SlogOption is a setting of SlogObserver.
type SlogOption func(*slogObserver)

// LogKeys adds the key to each line about a lease or a claim. By default no line has a
// key, and the attribute "hold" identifies the lines of one hold. Keys are often
// customers' data: an order, an account, a person. With LogKeys this data is stored in
// the log, and all readers of the log see the data.
func LogKeys() SlogOption { return func(o *slogObserver) { o.keys = true } }

// SlogObserver returns an Observer that writes to log, or to slog.Default if log is
// nil. It writes
//   - a lost lease as an error,
//   - a failed extension, release or cleanup, an overrun, a misuse, a node that is
//     out, work without its lock and a revoked hold as warnings,
//   - a node that is back as information,
//   - all other events at debug level.
//
// Each line has the event's Name as "lock". If Event.Hold returns an ID, the line has
// the ID as "hold". SlogObserver panics if an option is nil.
func SlogObserver(log *slog.Logger, opts ...SlogOption) Observer {
	s := slogObserver{log: log}
	for _, o := range opts {
		if o == nil {
			panic("core: SlogObserver: an option is nil")
		}
		o(&s)
	}
	return s
}

type slogObserver struct {
	log  *slog.Logger
	keys bool
}

func (o slogObserver) Observe(ctx context.Context, e Event) {
	log := cmp.Or(o.log, slog.Default())
	level := e.level()
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", e.Name)}
	add := func(known bool, a slog.Attr) {
		if known {
			attrs = append(attrs, a)
		}
	}
	add(e.Mode != 0, slog.String("mode", e.Mode.String()))
	id := e.Hold()
	add(id != "", slog.String("hold", id))
	if o.keys && e.of != nil {
		key, _ := e.of.about()
		add(key != "", slog.String("key", key))
	}
	add(e.Contended, slog.Bool("contended", true))
	add(e.Reentered, slog.Bool("reentered", true))
	add(e.Attempt > 0, slog.Int("attempt", e.Attempt))
	add(e.Wait > 0, slog.Duration("wait", e.Wait))
	add(e.Held > 0, slog.Duration("held", e.Held))
	if e.Err != nil {
		add(true, slog.String("error", e.Err.Error()))
	}
	log.LogAttrs(ctx, level, e.message(), attrs...)
}

// level returns the event's level in a log.
func (e Event) level() slog.Level {
	switch e.Kind {
	case Lost:
		return slog.LevelError
	case ExtendFailed, Overrun, Misused, NodeOut, RanUnlocked, Revoked:
		return slog.LevelWarn
	case Released, CleanedUp:
		if e.Err != nil {
			return slog.LevelWarn
		}
	case NodeBack:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// message returns the event's message in a log.
func (e Event) message() string {
	switch {
	case e.Err == nil:
	case e.Kind == Released:
		return "lock release failed"
	case e.Kind == CleanedUp:
		return "lock clean-up failed"
	}
	return "lock " + strings.ReplaceAll(e.Kind.String(), "_", " ")
}
