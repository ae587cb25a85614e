package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockkit/lockkit/core/internal/leaseid"
	"github.com/lockkit/lockkit/core/store"
)

// Locker turns claims at a store into leases. One Locker serves a whole process and is
// safe for concurrent use. Callers that want the same key queue inside the Locker, and
// only the first caller in the queue asks the store. For readers and permits, callers
// behind the first ask too, as long as the store grants their claims.
type Locker struct {
	engine
	config config
	writer *cardWriter // nil without WithCard
}

// New returns a Locker for store s. A Locker without leases, waiting acquires and
// releases in the background has no goroutines, and need not be closed. A Locker with a
// card always has a goroutine, and must be closed.
//
// Without WithObserver the Locker logs each loss of a lease to slog.Default, at level
// error, and no other event. Losses are logged because work may have continued without
// its lock.
//
// New fails with ErrInvalid if s or an option is nil, or if an option or a default is
// not allowed. It fails with ErrUnsupported if the store does not serve the defaults.
// WithCard lists the further errors for a card.
func New(s Store, opts ...Option) (*Locker, error) {
	if isNil(s) {
		return nil, fmt.Errorf("core: new: store is nil: %w", ErrInvalid)
	}
	c, err := configure(opts)
	if err != nil {
		return nil, fmt.Errorf("core: new: %w", err)
	}
	l := &Locker{config: c, engine: engine{
		process: leaseid.NewProcess(),
		keeper:  keeper{storeCalls: newStoreCalls(s, c.clock), events: c.events},
	}}
	_, wakes := s.(store.Watcher)
	l.roster.init()
	l.waiters.init(c.perKey, c.total, wakes, c.clock, l.roster.closing)
	l.watchdog.init(&l.keeper)
	l.cleanup.init(&l.storeCalls, c.events)
	if _, err := l.check(); err != nil {
		return nil, fmt.Errorf("core: new: defaults: %w", errors.Unwrap(err))
	}
	if c.card != nil {
		l.writer = &cardWriter{locker: l, card: *c.card}
		if err := l.writer.start(); err != nil {
			return nil, fmt.Errorf("core: new: %w", err)
		}
	}
	return l, nil
}

// Do runs fn under a lease of key, with the lease's context, and releases the lease
// when fn returns or panics. It returns the error of fn. If the lease was lost while fn
// ran, the error also matches ErrLost, even if fn returned nil. If the store does not
// confirm the release, the result of Do does not change. The Released event then has
// the error, and the release is retried in the background. If Do fails to acquire the
// lease, it returns the error of Acquire and does not run fn. Do fails with ErrInvalid
// if fn is nil.
func (l *Locker) Do(ctx context.Context, key string, fn func(ctx context.Context) error, opts ...AcquireOption) (err error) {
	if fn == nil {
		return fmt.Errorf("core: do: fn is nil: %w", ErrInvalid)
	}
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	defer func() {
		// After any error of Release except ErrLost, the work was done under the lock.
		// The observer gets the error, and the release is retried in the background.
		switch released := lease.Release(ctx); {
		case !errors.Is(released, ErrLost), errors.Is(err, ErrLost):
		case err == nil:
			err = released
		default:
			err = fmt.Errorf("%w (%w)", err, released)
		}
	}()
	return fn(lease.Context())
}

// Guard wraps fn so that each call runs under a lease of its key, as with Do. By
// default calls with the same key run one at a time, across all processes. If key or
// the acquire fails, the returned function returns that error and does not run fn.
// Otherwise it returns the result of fn. If the lease was lost, the error also matches
// ErrLost. Guard panics if an option is not allowed, or if the store of l does not
// serve it.
func Guard[Req, Resp any](l *Locker, key func(Req) (string, error),
	fn func(context.Context, Req) (Resp, error), opts ...AcquireOption,
) func(context.Context, Req) (Resp, error) {
	if _, err := l.check(opts...); err != nil {
		panic("core: guard: " + strings.TrimPrefix(err.Error(), "core: "))
	}
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		k, err := key(req)
		if err != nil {
			return resp, err
		}
		err = l.Do(ctx, k, func(ctx context.Context) error {
			var err error
			resp, err = fn(ctx, req)
			return err
		}, opts...)
		return resp, err
	}
}

// Close shuts the Locker down gracefully, like http.Server.Shutdown. Every new acquire
// and every waiting acquire fails with ErrClosed. Close waits until all leases are
// released, and then until the releases in the background are done.
//
// If ctx is done first, Close cancels the contexts of the remaining leases with cause
// ErrClosed and releases the leases at the store. It then returns an error that matches
// ctx's cause, at most about 8 seconds after ctx was done. A later call waits for the
// releases that are still retried in the background. A run of Begin that Close has
// released can still save its answer with Finish. If ctx is nil, Close fails with
// ErrInvalid and closes nothing.
//
// Call Close after the servers whose handlers hold leases have shut down, and before
// the client of the store is closed.
func (l *Locker) Close(ctx context.Context) error {
	if ctx == nil {
		return fmt.Errorf("core: close: ctx is nil: %w", ErrInvalid)
	}
	idle := l.roster.close()
	if !done(ctx, idle) {
		l.releaseAll()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		done(last, idle) // wait for acquires that were in flight
		l.settle(last)
		return fmt.Errorf("core: close: %w", context.Cause(ctx))
	}
	if !l.settle(ctx) {
		return fmt.Errorf("core: close: %w", context.Cause(ctx))
	}
	return nil
}

// settle stops the watchdog, waits for the cleanup, and then stops the card writer. It
// reports whether all three were completed before ctx was done.
func (l *Locker) settle(ctx context.Context) bool {
	settled := l.watchdog.stop(ctx) && l.cleanup.wait(ctx)
	return l.writer.stop(ctx) && settled
}

// releaseAll cancels the contexts of all leases and releases the leases concurrently.
// It takes at most as long as one release.
func (l *Locker) releaseAll() {
	var wg sync.WaitGroup
	for _, lease := range l.roster.heldLeases() {
		lease.endContext(ErrClosed)
		wg.Go(func() { lease.Release(context.Background()) })
	}
	wg.Wait()
}

// failOpen implements adapter.FailOpen.
func (l *Locker) failOpen(ctx context.Context, name string, err error) (context.Context, bool) {
	refused := errors.Is(err, ErrBusy) || errors.Is(err, ErrLost) || errors.Is(err, ErrClosed)
	if !errors.Is(err, ErrUnavailable) || refused || ctx.Err() != nil {
		return ctx, false
	}
	l.observe(ctx, Event{Kind: RanUnlocked, Name: name, Err: err})
	return context.WithValue(ctx, unlockedKey{}, true), true
}
