package rows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// Inside is a Place in a transaction of the caller. It sends each statement once.
type Inside struct {
	place *Place
	q     Querier
	most  int64 // how many bytes a statement may have, 0 if that is not known
}

var _ casstore.Place = (*Inside)(nil)

// Inside returns the Place in the transaction that is open in q. It fails with
// store.ErrInvalid if none is open, and with store.ErrUnsupported if the transaction is in
// another database, or one cannot save an answer at its isolation level. It writes nothing.
func (p *Place) Inside(ctx context.Context, q Querier) (*Inside, error) {
	if err := InTransaction(ctx, q, p.Dialect); err != nil {
		return nil, err
	}
	var fit bool
	var id string
	var version int
	in := &Inside{place: p, q: q}
	if err := q.QueryRowContext(ctx, p.Dialect.Inside().Text).Scan(&fit, &id, &version, &in.most); err != nil {
		if isMissing(err) {
			return nil, fmt.Errorf("the tables of the locks are not in the database of the transaction: %w: %w", store.ErrUnsupported, err)
		}
		return nil, fmt.Errorf("%w%s", err, advice(err))
	}
	switch {
	case version != dialect.SchemaVersion:
		return nil, fmt.Errorf("the tables are of version %d, not %d: %w", version, dialect.SchemaVersion, store.ErrUnsupported)
	case !fit:
		return nil, fmt.Errorf("the isolation level is above READ COMMITTED: %w", store.ErrUnsupported)
	}
	same, err := p.hasID(ctx, id)
	if err == nil && !same {
		err = fmt.Errorf("the transaction is in another database than the locks: %w", store.ErrUnsupported)
	}
	return in, err
}

// hasID reports whether the tables of p have this ID. It asks for it if it does not have this
// one yet.
func (p *Place) hasID(ctx context.Context, id string) (bool, error) {
	if known := p.id.Load(); known != nil && *known == id {
		return true, nil
	}
	var own string
	if err := p.One(ctx, p.Dialect.ID(), &own); err != nil {
		return false, err
	}
	p.id.Store(&own)
	return own == id, nil
}

// Load implements casstore.Place. It locks the row until the end of the transaction.
func (in *Inside) Load(ctx context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	st := in.place.Dialect.LoadLocked(key)
	var r dialect.Row
	err := in.q.QueryRowContext(ctx, st.Text, st.Args...).Scan(r.Fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return casstore.Entry{}, nil
	}
	return r.Item().Entry, err
}

// Save implements casstore.Place. It fails with store.ErrInvalid for a value that is longer
// than the server takes.
func (in *Inside) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	st := in.place.Dialect.SaveLocked(key, old, e)
	size := int64(len(st.Text))
	for _, arg := range st.Args {
		if b, ok := arg.([]byte); ok {
			size += int64(len(b))
		}
	}
	if in.most > 0 && size >= in.most {
		return false, fmt.Errorf("a statement of %d bytes is needed, the server takes %d (max_allowed_packet): %w", size, in.most, store.ErrInvalid)
	}
	result, err := in.q.ExecContext(ctx, st.Text, st.Args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
