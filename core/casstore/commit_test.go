package casstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

type placed struct {
	*casstore.Store
	place casstore.Place
}

func begin(s store.Store) *transaction {
	switch p := s.(placed).place.(type) {
	case bare:
		return &transaction{m: p.m}
	case *memory:
		return &transaction{m: p}
	default:
		panic("another place")
	}
}

// transaction is a caller's transaction. Its saves take effect with Commit. It locks
// nothing.
type transaction struct {
	m        *memory
	key      string
	old, new casstore.Entry
	saved    bool
}

func (x *transaction) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	return casstore.Commit(ctx, s.(placed).Store, x, c)
}

func (x *transaction) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := x.m.Load(ctx, key, w)
	if x.saved {
		x.new.Now = e.Now
		return x.new, err
	}
	return e, err
}

func (x *transaction) Save(_ context.Context, key string, old, e casstore.Entry) (bool, error) {
	x.key, x.old, x.new, x.saved = key, old, e, true
	return true, nil
}

func (x *transaction) Commit() error {
	if !x.saved {
		return nil
	}
	x.saved = false
	ok, err := x.m.Save(context.Background(), x.key, x.old, x.new)
	if err == nil && !ok {
		err = errors.New("a row that is locked was changed")
	}
	return err
}

func (x *transaction) Rollback() error {
	x.saved = false
	return nil
}

// TestCommit_Settled checks that after a commit a release with another record makes one
// Load and no Save.
func TestCommit_Settled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := placed{newStore(t, m), m}
		c := claim("run")
		c.Record = &store.Record{Value: []byte("begun"), Retain: ttl}
		acquire(t, s, c)
		x := begin(s)
		c.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: ttl}
		if err := errors.Join(x.SaveRun(t.Context(), s, c), x.Commit()); err != nil {
			t.Fatal(err)
		}
		loads, saves := m.loads, m.saves
		c.Record = &store.Record{Value: []byte("failed"), Attempt: 1, Retain: ttl}
		release(t, s, c, store.ErrSaved)
		if loads, saves := m.loads-loads, m.saves-saves; loads != 1 || saves != 0 {
			t.Errorf("got %d loads and %d saves, want 1 and none", loads, saves)
		}
	})
}
