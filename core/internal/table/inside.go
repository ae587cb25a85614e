package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// Tx is a transaction of a caller. It sends each statement once. Its errors are the
// driver's errors.
type Tx interface {
	// Change sends a statement and returns the number of rows that it has changed.
	Change(ctx context.Context, st dialect.Statement) (int64, error)
	// One reads the single row that a statement returns. It fails with ErrNoRow if the
	// result has no row.
	One(ctx context.Context, st dialect.Statement, to ...any) error
	// IsWrongState reports whether a statement failed with err because a transaction
	// was open, or because no transaction was open. IsMissing reports whether a missing
	// table was the reason, and IsDenied whether a missing right was the reason.
	IsWrongState(err error) bool
	IsMissing(err error) bool
	IsDenied(err error) bool
}

// ErrNoRow is the error of One for a result without a row.
var ErrNoRow = errors.New("no row")

// Prove reports whether a session passes the proof.
func Prove(ctx context.Context, tx Tx, proof dialect.Proof) (ok bool, err error) {
	if proof.Fail != "" {
		if _, err := tx.Change(ctx, dialect.Statement{Text: proof.Fail}); !tx.IsWrongState(err) {
			return false, err
		}
	}
	for _, text := range proof.Succeed {
		if _, err := tx.Change(ctx, dialect.Statement{Text: text}); tx.IsWrongState(err) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	ok = true
	if proof.True != "" {
		err = tx.One(ctx, dialect.Statement{Text: proof.True}, &ok)
	}
	return ok, err
}

// Inside is a Place in a transaction of the caller. It sends each statement once.
type Inside struct {
	tx      Tx
	dialect dialect.Dialect
	most    int64 // the maximum length of a statement in bytes; 0 if unknown
}

var _ casstore.Place = (*Inside)(nil)

// Inside returns the Place in tx, a transaction that Prove has proven to be open. It
// writes nothing. It fails with store.ErrUnsupported if the transaction is in another
// database or in a logical replica. It also fails with store.ErrUnsupported if the
// isolation level does not allow saving a record, or if the session has a time of its
// own.
func (p *Place) Inside(ctx context.Context, tx Tx) (*Inside, error) {
	var fit, timely, original bool
	var id string
	var version int
	in := &Inside{tx: tx, dialect: p.Dialect}
	if err := tx.One(ctx, p.Dialect.Inside(), &fit, &timely, &original, &id, &version, &in.most); err != nil {
		if tx.IsMissing(err) {
			return nil, fmt.Errorf("the tables of the locks are not in the database of the transaction: %w: %w", store.ErrUnsupported, err)
		}
		return nil, in.advised(err)
	}
	switch {
	case version != dialect.SchemaVersion:
		return nil, fmt.Errorf("the tables are of version %d, not %d: %w", version, dialect.SchemaVersion, store.ErrUnsupported)
	case !fit:
		return nil, fmt.Errorf("the isolation level is above READ COMMITTED: %w", store.ErrUnsupported)
	case !timely:
		return nil, fmt.Errorf("the session of the transaction has a set timestamp: set no timestamp in the DSN: %w", store.ErrUnsupported)
	case !original:
		return nil, fmt.Errorf("the transaction is in a logical replica of the locks: %w", store.ErrUnsupported)
	}
	same, err := p.hasID(ctx, id)
	if err == nil && !same {
		err = fmt.Errorf("the transaction is in another database than the locks: %w", store.ErrUnsupported)
	}
	return in, err
}

// hasID reports whether the tables of p have this ID. If no Load of the newest row has
// read this ID, hasID reads it from the database, on a separate connection. It does not
// detect that p has moved to another server since its last Load.
func (p *Place) hasID(ctx context.Context, id string) (bool, error) {
	if known := p.id.Load(); known != nil && *known == id {
		return true, nil
	}
	var own string
	if err := One(ctx, p.DB, p.Dialect.ID(), &own); err != nil {
		return false, err
	}
	p.id.Store(&own)
	return own == id, nil
}

// Load implements casstore.Place. It locks the row until the end of the transaction.
func (in *Inside) Load(ctx context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	var r dialect.Row
	err := in.tx.One(ctx, in.dialect.LoadLocked(key), r.Fields()...)
	if errors.Is(err, ErrNoRow) {
		return casstore.Entry{}, nil
	}
	return r.Item().Entry, in.advised(err)
}

// Save implements casstore.Place. It fails with store.ErrInvalid for a value that is
// too long for a statement of the server.
func (in *Inside) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	st := in.dialect.SaveLocked(key, old, e)
	if err := fits(st.Size(), in.most); err != nil {
		return false, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	n, err := in.tx.Change(ctx, st)
	return n == 1, in.advised(err)
}

// advised returns err with the rights that the user of the transaction needs, if err is
// about a right. Check does not test these rights, because that user may differ from
// the user of the locks.
func (in *Inside) advised(err error) error {
	if err == nil || !in.tx.IsDenied(err) {
		return err
	}
	return fmt.Errorf("the user of the transaction lacks a right, it needs %s: %w", in.dialect.CommitRights(), err)
}
