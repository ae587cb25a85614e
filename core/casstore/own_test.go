package casstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/lockkit/lockkit/core/casstore"
)

// Schema is a table with a row for each key.
const Schema = `CREATE TABLE IF NOT EXISTS locks (
	name    bytea PRIMARY KEY,
	version bigint NOT NULL,
	state   bytea NOT NULL,
	value   bytea
)`

// Place stores locks in that table.
type Place struct{ DB *sql.DB }

// New returns a store for core.New.
func New(db *sql.DB) (*casstore.Store, error) { return casstore.New(Place{db}) }

// Load reads the clock of the server and the row, if there is one, in one statement.
func (p Place) Load(ctx context.Context, key string, w casstore.Want) (e casstore.Entry, err error) {
	const text = `SELECT clock_timestamp(), coalesce(l.version, 0), l.state, CASE WHEN $2 THEN l.value END
		FROM (SELECT 1) AS always LEFT JOIN locks AS l ON l.name = $1`
	err = p.DB.QueryRowContext(ctx, text, []byte(key), w.Value).Scan(&e.Now, &e.Version, &e.State, &e.Value)
	return e, err
}

// Save writes the row if it still has the loaded version. The statement runs in its own
// transaction, so no row stays locked.
func (p Place) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	text := `UPDATE locks SET version = $2, state = $3, value = CASE WHEN $4 THEN value ELSE $5 END
		WHERE name = $1 AND version = $6`
	if old.Version == 0 {
		text = `INSERT INTO locks (name, version, state, value)
			SELECT $1, $2, $3, CASE WHEN NOT $4 THEN $5::bytea END WHERE $6::bigint = 0 ON CONFLICT DO NOTHING`
	}
	r, err := p.DB.ExecContext(ctx, text, []byte(key), e.Version, e.State, e.KeepValue, e.Value, old.Version)
	switch {
	case rolledBack(err):
		return false, casstore.ErrConflict
	case err != nil:
		return false, err // the row may have changed: the Store and its Locker find out
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// rolledBack reports whether the server has changed nothing because of other
// transactions, after a deadlock or a serialization failure. 40003 means that the
// server does not know.
func rolledBack(err error) bool {
	var e interface{ SQLState() string }
	return errors.As(err, &e) && strings.HasPrefix(e.SQLState(), "40") && e.SQLState() != "40003"
}

// List lists the holds and their processes for operators. Locks do not need it.
func (p Place) List(ctx context.Context, after string, most int) (items []casstore.Item, err error) {
	rows, err := p.DB.QueryContext(ctx, `SELECT clock_timestamp(), name, version, state
		FROM locks WHERE name > $1 ORDER BY name LIMIT $2`, []byte(after), most)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var i casstore.Item
		var name []byte
		if err := rows.Scan(&i.Now, &name, &i.Version, &i.State); err != nil {
			return nil, err
		}
		i.Key = string(name)
		items = append(items, i)
	}
	return items, rows.Err()
}
