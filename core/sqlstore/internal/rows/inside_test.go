package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// outside is a session of MariaDB without a transaction, as after a deadlock.
type outside struct{ t *testing.T }

// sqlError is an error like those of MySQL's driver.
type sqlError struct{ Number uint16 }

func (sqlError) Error() string { return "SAVEPOINT lockkit does not exist" }

func (o outside) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	switch query {
	case "SAVEPOINT lockkit":
		return driver.RowsAffected(0), nil
	case "RELEASE SAVEPOINT lockkit":
		return nil, sqlError{1305}
	}
	o.t.Fatalf("%q was sent outside a transaction", query)
	return nil, nil
}

func (o outside) QueryRowContext(_ context.Context, query string, _ ...any) *sql.Row {
	o.t.Fatalf("%q was sent outside a transaction", query)
	return nil
}

// TestInside_NoTransaction checks that nothing is written if the database has rolled
// back the transaction without its caller's knowledge.
func TestInside_NoTransaction(t *testing.T) {
	t.Parallel()
	p := New(nil, dialect.MySQL{})
	if in, err := p.Inside(t.Context(), outside{t}); !errors.Is(err, store.ErrInvalid) || in != nil {
		t.Errorf("got %v and %v, want %v", in, err, store.ErrInvalid)
	}
}

// TestInside_Moved checks that a Commit on the former server of the rows is refused
// after the rows have moved to another server. A plain read that another server has
// answered does not make Commit fail.
func TestInside_Moved(t *testing.T) {
	t.Parallel()
	row := func(id string) answer {
		return answer{tuple: []driver.Value{true, true, true, int64(dialect.SchemaVersion), id, int64(0), int64(1), int64(0), nil,
			int64(0), int64(0), nil, nil, int64(0), int64(0), int64(0), int64(0), nil, nil}}
	}
	id := func(id string) answer { return answer{tuple: []driver.Value{id}} }
	inside := func(id string) []answer { // the proof and the ID in the transaction
		return []answer{{}, {}, {tuple: []driver.Value{true, true, true, id, int64(dialect.SchemaVersion), int64(0)}}}
	}
	for name, c := range map[string]struct {
		answers []answer // of the locks' server
		loads   []casstore.Want
		want    error
	}{
		"newest row read":             {[]answer{row("old")}, []casstore.Want{{Current: true}}, nil},
		"run read":                    {[]answer{row("old")}, []casstore.Want{{Value: true}}, nil},
		"another server since":        {[]answer{row("old"), row("new"), id("new")}, []casstore.Want{{Value: true}, {Value: true}}, store.ErrUnsupported},
		"another reader is not moved": {[]answer{row("old"), row("new"), id("old")}, []casstore.Want{{Value: true}, {}}, nil},
		"reader first":                {[]answer{row("old"), id("new")}, []casstore.Want{{}}, store.ErrUnsupported},
		"reader first is not moved":   {[]answer{row("new"), id("old")}, []casstore.Want{{}}, nil},
		"nothing read":                {[]answer{id("new")}, nil, store.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newFake(t, c.answers...)
			for _, w := range c.loads {
				if _, err := p.Load(t.Context(), "key", w); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := p.Inside(t.Context(), newFake(t, inside("old")...).DB); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
