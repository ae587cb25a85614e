package once

import "github.com/lockkit/lockkit/core"

// With is o with further acquire options after its own, for some of the calls:
// the same records, claimed in another way. Do fails with core.ErrInvalid if
// they are not allowed.
func (o *Once) With(opts ...core.AcquireOption) *Once {
	with := *o
	with.acquire = append(o.acquire[:len(o.acquire):len(o.acquire)], opts...)
	return &with
}

// Terms tells an adapter how o claims its runs: with which Locker, and with which
// options.
func (o *Once) Terms() (*core.Locker, []core.AcquireOption) {
	return o.locker, o.acquire[:len(o.acquire):len(o.acquire)]
}
