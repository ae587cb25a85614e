// Package saving has a store in memory with transactions of the caller. It is for tests
// of adapters that commit an answer with once.Commit.
package saving

import (
	"context"
	"errors"
	"sync"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// Store has locks in memory, and saves the answers of its transactions.
type Store struct {
	*memstore.Store
	saved sync.Map // the leases that have committed
}

// New returns an empty Store.
func New() *Store { return &Store{Store: memstore.New()} }

// Release implements store.Store. If the lease has committed, a Release that cannot
// save its record fails with store.ErrSaved.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	err := s.Store.Release(ctx, c)
	if _, ok := s.saved.Load(c.Lease); ok && c.Record != nil && errors.Is(err, store.ErrLost) {
		return store.ErrSaved
	}
	return err
}

// Begin begins a transaction. A transaction that is not committed changes nothing.
func (s *Store) Begin() *Tx { return &Tx{in: s} }

// Tx is a transaction, and a once.Saver.
type Tx struct {
	in *Store
	c  store.Claim
}

// SaveRun implements once.Saver.
func (x *Tx) SaveRun(_ context.Context, s store.Store, c store.Claim) error {
	if s != store.Store(x.in) {
		return store.ErrUnsupported
	}
	x.c = c
	return nil
}

// Commit saves the record of SaveRun and releases its claim.
func (x *Tx) Commit() error {
	err := x.in.Store.Release(context.Background(), x.c)
	if err == nil {
		x.in.saved.Store(x.c.Lease, true)
	}
	return err
}
