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
// process. In the process that took it, it is taken until Unlock, even if it is lost in
// the meantime: so an Unlock never frees another caller's name. Locks is safe for
// concurrent use, and any goroutine may unlock.
type Locks struct {
	locker *core.Locker
	opts   []core.AcquireOption
	kind   string // the first part of the keys

	taken keyed.Mutexes[string] // by name, from Lock to Unlock

	mu     sync.Mutex
	leases map[string]*core.Lease
}

// New makes Locks on l. opts are the options of each acquire: core.TTL is how long a
// name stays taken after its process died, core.Wait limits Lock. The key of a name is
// core.Key("named", name). New sends nothing, and panics where l.Check fails with opts.
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

// Lock takes the name, and waits for it until ctx is done. A second Lock of a name that
// this process has waits for Unlock. The name stays taken when ctx is done later. Lock
// fails as core.Locker.Acquire does, and has then taken nothing.
func (l *Locks) Lock(ctx context.Context, name string) error {
	if err := l.taken.Lock(ctx, name); err != nil {
		return fmt.Errorf("lock %s: %w: %w", l.kind, core.ErrBusy, err)
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

// take takes the name at the store too. If that fails, the name is free in this process
// again.
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

// Unlock releases the name. It is safe to call with a canceled ctx, and is bounded as
// core.Lease.Release is. It fails with core.ErrLost if the lock was lost before, and
// with core.ErrUnavailable if the store did not answer. In both cases the name is not
// taken by this process any more. It fails with core.ErrInvalid if this process has not
// taken the name, and nothing is sent.
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

// RenewLockLease reports whether the name is still taken. It returns core.ErrLost if
// the name was lost, and core.ErrInvalid if this process has not taken it. Locks are
// extended without being asked to, so it sends nothing and ignores d.
func (l *Locks) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	lease := l.leases[name]
	l.mu.Unlock()
	switch {
	case lease == nil:
		return l.notTaken("renew")
	case lease.Context().Err() != nil:
		return fmt.Errorf("renew %s: %w", l.kind, context.Cause(lease.Context()))
	}
	return nil
}

func (l *Locks) notTaken(op string) error {
	return fmt.Errorf("%s %s: this process has not locked it: %w", op, l.kind, core.ErrInvalid)
}

// DB is one lock of Locks for users of database/sql. It does not use their database.
type DB struct {
	locks *Locks
	name  string
}

// NewDB makes the lock of that name. Its key is core.Key("db", name). All replicas of
// goose that migrate one database need the same store and name. NewDB panics as New
// does.
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

// NewPlain makes Locks whose Lock waits no longer than most, because nothing else ends
// the wait. Their keys are core.Key("plain", key): a stranger that chooses keys, as
// with idempotency keys, cannot take names of Locks. NewPlain panics as New does, and
// if most is not positive.
func NewPlain(l *core.Locker, most time.Duration, opts ...core.AcquireOption) *Plain {
	if most <= 0 {
		panic("named: a Plain waits for a positive time")
	}
	return &Plain{newLocks("plain", l, opts), most}
}

// Lock calls Locks.Lock, and fails with core.ErrBusy if the key is not free in time.
func (p *Plain) Lock(key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), p.most)
	defer cancel()
	return p.locks.Lock(ctx, key)
}

// Unlock calls Locks.Unlock.
func (p *Plain) Unlock(key string) error { return p.locks.Unlock(context.Background(), key) }
