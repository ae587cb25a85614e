package models_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// database is a casstore.Place in memory with at most one open transaction. The
// transaction locks all rows, as commit.pml has only one.
type database struct {
	mu   sync.Mutex
	rows map[string]casstore.Entry
	open *transaction // nil if no transaction is open
}

func newDatabase() *database { return &database{rows: make(map[string]casstore.Entry)} }

// Load implements casstore.Place. It does not wait for a transaction.
func (d *database) Load(_ context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.rows[key]
	e.Now = time.Now()
	return e, nil
}

// Save implements casstore.Place. While a transaction is open, Save fails at once with
// store.ErrUnavailable. A real database would wait for the lock.
func (d *database) Save(_ context.Context, key string, old, e casstore.Entry) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.rows[key]
	switch {
	case d.open != nil:
		return false, store.ErrUnavailable
	case now.Version != old.Version:
		return false, nil
	}
	if e.KeepValue {
		e.Value, e.KeepValue = now.Value, false
	}
	d.rows[key] = e
	return true, nil
}

// transaction is the Place of casstore.Commit in a transaction of the caller. Its Load
// is that of the database, and its Save writes to changed.
type transaction struct {
	*database
	changed map[string]casstore.Entry
}

func (d *database) begin() *transaction {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = &transaction{database: d, changed: make(map[string]casstore.Entry)}
	return d.open
}

// Save implements casstore.Place. The row is locked, so it has not changed since Load.
func (x *transaction) Save(_ context.Context, key string, _, e casstore.Entry) (bool, error) {
	x.changed[key] = e
	return true, nil
}

// end ends the open transaction.
func (d *database) end(commit bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return errors.New("no transaction is open")
	}
	if commit {
		maps.Copy(d.rows, d.open.changed)
	}
	d.open = nil
	return nil
}
