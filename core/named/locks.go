package named

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/internal/keyed"
)

// Locks takes and releases locks by name. A name is free, or taken by one caller of one
// process. A name stays taken in its process until Unlock, even if its lock is lost. So
// an Unlock after a loss does not free the name of a later caller. Locks is safe for
// concurrent use, and any goroutine may unlock.
type Locks struct {
	locker *core.Locker
	opts   []core.AcquireOption
	kind   string // the first part of the keys

	taken keyed.Mutexes[string] // by name, from Lock to Unlock

	mu     sync.Mutex
	leases map[string]*core.Lease
}

// New returns Locks on l. opts are the options of each acquire. core.TTL sets the time
// for which a name stays taken after the death of its process. core.Wait limits the
// wait of Lock for other processes. The key of a name is core.Key("named", name). New
// sends nothing. It panics if l is nil, or if adapter.Check fails with opts.
func New(l *core.Locker, opts ...core.AcquireOption) *Locks { return newLocks("named", l, opts) }

func newLocks(kind string, l *core.Locker, opts []core.AcquireOption) *Locks {
	if l == nil {
		panic("named: locker is nil")
	}
	if _, err := adapter.Check(l, opts...); err != nil {
		panic("named: " + err.Error())
	}
	return &Locks{locker: l, opts: opts, kind: kind, leases: make(map[string]*core.Lease)}
}

// Lock takes the name. If another process has taken the name, Lock waits for the name
// until ctx is done, or for the time of core.Wait. A second Lock of a name that this
// Locks has taken waits for Unlock or until ctx is done. A name that Lock has taken
// stays taken when ctx is done later. Lock fails with the errors of
// core.Locker.Acquire, and has then taken nothing.
func (l *Locks) Lock(ctx context.Context, name string) error {
	if err := l.taken.Lock(ctx, name); err != nil {
		return fmt.Errorf("named: lock %q: %w: %w", l.kind, core.ErrBusy, err)
	}
	return l.take(ctx, name, l.locker.Acquire)
}

// TryLock makes one attempt to take the name, like Lock. It returns false, and no
// error, if the name is taken.
func (l *Locks) TryLock(ctx context.Context, name string) (bool, error) {
	if !l.taken.TryLock(name) {
		return false, nil
	}
	err := l.take(ctx, name, l.locker.TryAcquire)
	if errors.Is(err, core.ErrBusy) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

type acquire func(ctx context.Context, key string, opts ...core.AcquireOption) (*core.Lease, error)

// take takes the name at the store, after the caller has taken it in this process. If
// take fails, the name is free in this process again.
func (l *Locks) take(ctx context.Context, name string, acquire acquire) error {
	held := false
	defer func() {
		if !held {
			l.taken.Unlock(name)
		}
	}()
	lease, err := acquire(ctx, core.Key(l.kind, name), l.opts...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases[name], held = lease, true
	return nil
}

// Unlock releases the name. It is safe to call with a canceled ctx, and has the time
// limit of core.Lease.Release. It fails with core.ErrLost if the lock was lost before,
// and with core.ErrUnavailable if the store did not answer. In both cases the name is
// no longer taken in this process. If this process has not taken the name, Unlock fails
// with core.ErrInvalid and sends nothing.
func (l *Locks) Unlock(ctx context.Context, name string) error {
	l.mu.Lock()
	lease := l.leases[name]
	delete(l.leases, name)
	l.mu.Unlock()
	if lease == nil {
		return l.notTaken("unlock")
	}
	defer l.taken.Unlock(name)
	return lease.Release(ctx)
}

// RenewLockLease returns nil if the name's lock is still held, even after Lock's ctx is
// done. It fails with core.ErrLost if the lock was lost, with core.ErrClosed if
// Locker.Close released it while Lock's ctx was not done, and with core.ErrInvalid if
// this process has not taken the name. It sends nothing and ignores d, because a held
// lock is extended without a call.
func (l *Locks) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	lease := l.leases[name]
	l.mu.Unlock()
	if lease == nil {
		return l.notTaken("renew")
	}
	if time.Until(lease.Deadline()) > 0 { // the deadline is read before the clock
		return nil
	}
	err := context.Cause(lease.Context())
	if !errors.Is(err, core.ErrClosed) && !errors.Is(err, core.ErrLost) {
		err = core.ErrLost // Lock's ctx was done before
	}
	return fmt.Errorf("named: renew %q: %w", l.kind, err)
}

func (l *Locks) notTaken(op string) error {
	return fmt.Errorf("named: %s %q: this process has not locked it: %w", op, l.kind, core.ErrInvalid)
}

// DB is one lock of Locks for users of database/sql. It does not use their database.
type DB struct {
	locks *Locks
	name  string
}

// NewDB returns the lock with this name. Its key is core.Key("db", name). All replicas
// that migrate one database with goose need the same store and name. NewDB panics like
// New.
func NewDB(l *core.Locker, name string, opts ...core.AcquireOption) *DB {
	return &DB{newLocks("db", l, opts), name}
}

// Lock calls Locks.Lock.
func (d *DB) Lock(ctx context.Context, _ *sql.DB) error { return d.locks.Lock(ctx, d.name) }

// Unlock calls Locks.Unlock.
func (d *DB) Unlock(ctx context.Context, _ *sql.DB) error { return d.locks.Unlock(ctx, d.name) }

// Plain is Locks without contexts.
type Plain struct {
	locks *Locks
	most  time.Duration
}

// NewPlain returns a Plain whose Lock waits for at most the time most. Lock has no
// context that could end the wait. The key of a lock is core.Key("plain", key). So a
// client that chooses keys, such as idempotency keys, cannot take a name of Locks.
// NewPlain panics like New, and if most is not positive.
func NewPlain(l *core.Locker, most time.Duration, opts ...core.AcquireOption) *Plain {
	if most <= 0 {
		panic("named: a Plain waits for a positive time")
	}
	return &Plain{newLocks("plain", l, opts), most}
}

// Lock calls Locks.Lock, and fails with core.ErrBusy if the key does not become free in
// time.
func (p *Plain) Lock(key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.most)
	defer cancel()
	return p.locks.Lock(ctx, key)
}

// Unlock calls Locks.Unlock.
func (p *Plain) Unlock(key string) error { return p.locks.Unlock(context.Background(), key) }
