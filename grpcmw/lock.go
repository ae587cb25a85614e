package grpcmw

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
)

// Lock returns a rule that runs calls under a lock. It locks core.Key(name, key), or
// core.Key(name, parts...) if Join made the key. The option Also adds further keys.
// Lock makes one attempt, unless Acquire(core.Wait(d)) sets a wait. Without the lock,
// the handler does not run. The call is then refused, as the package documentation
// describes. With FailOpen, the handler runs without the lock if the store is
// unavailable.
//
// The handler runs under the lease's context, which is derived from the call's own
// context. The lock is released when the handler has returned or panicked, before the
// reply or the status of a stream is sent. So a client's next call finds the lock free.
// If the store is unavailable at that time, the release can take about 3 seconds. The
// lock does not cover goroutines that a handler has started and not awaited.
//
// An inner rule or handler that acquires the same key, with the lease's context and the
// same store, re-enters the lock. A Lock also applies to a method without side effects.
//
// Lock panics if l or key is nil, or if name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes. It also panics for an option that is nil or not for Lock, and for
// an acquire option that is not allowed or that the store's CheckClaim refuses.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) Rule {
	switch err := keys.CheckName(name); {
	case l == nil:
		panic("grpcmw: Lock: the locker is nil")
	case err != nil:
		panic("grpcmw: Lock: " + err.Error())
	case key == nil:
		panic("grpcmw: Lock: the key is nil")
	}
	m := &lock{config: configure("Lock", forLock, opts), locker: l, name: name, key: key}
	m.acquire = append([]core.AcquireOption{core.Wait(0), core.Name(name)}, m.acquire...)
	if _, err := adapter.Check(l, m.acquire...); err != nil {
		panic(fmt.Sprintf("grpcmw: Lock: %v", err))
	}
	return m
}

type lock struct {
	config
	locker *core.Locker
	name   string
	key    KeyFunc
}

func (m *lock) serve(ctx context.Context, c *call, next int) (any, error) {
	if m.skip != nil && m.skip(ctx, c.name, c.req) {
		return c.run(ctx, next)
	}
	if m.owner {
		ctx = takeOwner(ctx)
	}
	key, also, err := m.find(ctx, c)
	if err != nil {
		return nil, c.refuse(ctx, &m.config, keyRefusal(c, m.name, err))
	}
	opts := m.acquire
	if len(also) > 0 {
		opts = append(slices.Clip(opts), core.Also(also...))
	}
	lease, err := m.locker.Acquire(ctx, key, opts...)
	if err != nil && m.open {
		if open, ok := adapter.FailOpen(ctx, m.locker, m.name, err); ok {
			return c.run(open, next)
		}
	}
	if err != nil {
		return nil, c.refuse(ctx, &m.config, acquireRefusal(ctx, c, m.name, err))
	}
	// The handler's response does not depend on the error of Release. The Locker's
	// observer is notified of that error.
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }()
	if c.stream != nil {
		c.stream.leases = append(c.stream.leases, lease)
	}
	return c.run(lease.Context(), next)
}

func (m *lock) find(ctx context.Context, c *call) (key string, also []string, err error) {
	one := func(f KeyFunc) (string, error) {
		value, err := c.ask(ctx, f)
		if err != nil {
			return "", err
		}
		return sourceOf("key").Key(m.name, value)
	}
	if key, err = one(m.key); err != nil {
		return "", nil, err
	}
	for _, f := range m.also {
		more, err := one(f)
		if err != nil {
			return "", nil, err
		}
		also = append(also, more)
	}
	return key, also, nil
}

func (m *lock) inspect(to *method) []error {
	return to.try(append([]KeyFunc{m.key}, m.also...)...)
}
