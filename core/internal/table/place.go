// Package table stores locks in the rows of a table. It is the place of package
// casstore in a SQL database, through any driver.
package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// DB sends statements, each in its own transaction. An error matches
// store.ErrUnavailable if nothing was changed. It also matches casstore.ErrConflict if
// another statement was the cause.
type DB interface {
	// Query sends a statement, and calls next for each row of the result. Query also
	// fails if the statement fails after a row. A transaction can fail until the end of
	// its result.
	Query(ctx context.Context, st dialect.Statement, next func(scan Scan) error) error
	// Change sends a statement and returns the number of rows that it has changed.
	Change(ctx context.Context, st dialect.Statement) (int64, error)
}

// Scan reads the columns of a row into variables.
type Scan = func(to ...any) error

// Place implements casstore.Place, Usual, Lister and Sweeper on DB, in the tables of
// Dialect. Its methods return soon after their ctx is done.
type Place struct {
	DB      DB
	Dialect dialect.Dialect
	// Together is the maximum number of holds that one statement extends.
	Together int

	id   atomic.Pointer[string] // the ID of the tables at the server that writes, or nil
	most atomic.Int64           // the maximum bytes of a statement, from the last Load; 0: unknown
}

var (
	_ casstore.Usual   = (*Place)(nil)
	_ casstore.Lister  = (*Place)(nil)
	_ casstore.Sweeper = (*Place)(nil)
)

// Load implements casstore.Place. It fails with ErrHidden if the tables have no visible
// version.
//
// While the ID of the tables is unknown, the Load of a run reads the newest row. With
// that row it reads the ID at the server that writes. So a later Commit needs no round
// trip for the ID.
func (p *Place) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	wanted := w
	w.Current = w.Current || w.Value && p.id.Load() == nil
	items, err := p.read(ctx, p.Dialect.Load(key, w), w.Current)
	if w != wanted && errors.Is(err, casstore.ErrConflict) { // the row is locked
		items, err = p.read(ctx, p.Dialect.Load(key, wanted), false)
	}
	switch {
	case err != nil:
		return casstore.Entry{}, err
	case len(items) != 1:
		return casstore.Entry{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ErrHidden)
	}
	return items[0].Entry, nil
}

// ReadsElsewhere reports whether plain reads and reads of the newest row reach
// different servers. It recognizes a different server only by a different ID.
func (p *Place) ReadsElsewhere(ctx context.Context, key string) (bool, error) {
	var ids [2]string
	for i, w := range []casstore.Want{{}, {Current: true}} {
		var r dialect.Row
		if err := One(ctx, p.DB, p.Dialect.Load(key, w), r.Fields()...); err != nil {
			return false, err
		}
		ids[i] = r.ID
	}
	return ids[0] != ids[1], nil
}

// List implements casstore.Lister.
func (p *Place) List(ctx context.Context, after string, most int) ([]casstore.Item, error) {
	return p.read(ctx, p.Dialect.List(after, most), false)
}

// Dead implements casstore.Sweeper.
func (p *Place) Dead(ctx context.Context, most int) ([]casstore.Item, error) {
	return p.read(ctx, p.Dialect.Dead(most), false)
}

// read returns the entries in the rows that st returns. A replica may answer st, unless
// current is set. The errors of read match store.ErrUnavailable.
func (p *Place) read(ctx context.Context, st dialect.Statement, current bool) (items []casstore.Item, err error) {
	err = p.DB.Query(ctx, st, func(scan Scan) error {
		var r dialect.Row
		if err := scan(r.Fields()...); err != nil {
			return err
		}
		switch {
		case !r.Alone:
			return ErrOpen
		case !r.Writes:
			return ErrReplica
		case !r.Original:
			return ErrSubscribed
		case r.Schema < dialect.SchemaVersion:
			return errOld
		case r.Schema > dialect.SchemaVersion:
			return errNew
		}
		if r.ID != "" {
			p.note(r.ID, current)
			p.most.Store(r.Most)
		}
		items = append(items, r.Item())
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrUnavailable) { // a read changes nothing in any case
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return items, err
}

// note records the ID that a Load has read. Only a Load of the newest row is certain to
// reach the server that writes. After a plain Load of another ID, the ID of that server
// is unknown, because that server may have changed.
func (p *Place) note(id string, current bool) {
	switch known := p.id.Load(); {
	case known != nil && *known == id:
	case current:
		id := id // a copy, so that only this case allocates memory
		p.id.Store(&id)
	case known != nil:
		p.id.CompareAndSwap(known, nil)
	}
}

var (
	// ErrOpen is the error of a session that does not commit each statement, or that has
	// a time of its own.
	ErrOpen = errors.New("the session has autocommit off, an open transaction, the isolation level READ-UNCOMMITTED, or a set timestamp: " +
		"set autocommit=1 and no timestamp in the DSN, and give the locks a *sql.DB of their own")
	// ErrHidden is the error of tables without a version, or with a version that the
	// user cannot see.
	ErrHidden = errors.New("the table of the version is empty, call Migrate")
	// ErrReplica is the error of a read that was answered by a server that does not
	// accept writes.
	ErrReplica = errors.New("the server that answers does not write, as a replica: send all statements to the primary")

	// ErrSubscribed is the error of a read of the newest row if a logical replica has
	// answered, or a server that has replaced its origin.
	ErrSubscribed = errors.New("a subscription writes the tables of the server that answers: send all statements to the primary, " +
		"or DROP SUBSCRIPTION if this server has replaced it, Check has the statements")

	errOld = errors.New("the tables are of an older version: call Migrate")
	errNew = errors.New("the tables are of a newer version: update this program")
)

// IsReplica reports whether err matches ErrReplica or ErrSubscribed. The server that
// answered may then not be the server that writes.
func IsReplica(err error) bool {
	return errors.Is(err, ErrReplica) || errors.Is(err, ErrSubscribed)
}

// fits returns an error if a statement of size bytes is longer than the server allows.
// If such a statement were sent, the server would close the connection, and the outcome
// would be unknown. If most is 0, the maximum is unknown.
func fits(size, most int64) error {
	if most > 0 && size >= most {
		return fmt.Errorf("the statement has %d bytes (less than %d): set max_allowed_packet", size, most)
	}
	return nil
}

// Fits returns an error if a value of n bytes is too long for the server, by the maximum
// that the last Load has read.
func (p *Place) Fits(n int) error { return fits(dialect.SizeWith(n), p.most.Load()) }

// Save implements casstore.Place. It fails without sending anything if the statement is
// longer than the maximum that the last Load has read.
func (p *Place) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	st := p.Dialect.Save(key, old, e)
	if err := fits(st.Size(), p.most.Load()); err != nil {
		return false, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	n, err := p.DB.Change(ctx, st)
	return n == 1, err
}

// Take implements casstore.Usual.
func (p *Place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	var n int64
	err = p.DB.Query(ctx, p.Dialect.Take(c, version), func(scan Scan) error { return scan(&n) })
	if err != nil { // even after a row: the grant counts only with the end of the result
		return 0, false, err
	}
	return uint64(n), n > 0, nil
}

// Give implements casstore.Usual.
func (p *Place) Give(ctx context.Context, c store.Claim, version int64) (bool, error) {
	n, err := p.DB.Change(ctx, p.Dialect.Give(c, version))
	return n == 1, err
}

// maxDoomed is the maximum number of bytes of the keys that one statement deletes. The
// statement contains the keys in hex, and some servers limit a statement to 1 MiB.
const maxDoomed = 128 << 10

// Delete implements casstore.Sweeper. It uses one statement, unless the keys are very
// long.
func (p *Place) Delete(ctx context.Context, items []casstore.Item) (deleted int, err error) {
	for len(items) > 0 {
		n, bytes := 0, 0
		for n < len(items) && (n == 0 || bytes+len(items[n].Key) <= maxDoomed) {
			bytes += len(items[n].Key)
			n++
		}
		changed, err := p.DB.Change(ctx, p.Dialect.Delete(items[:n]))
		if err != nil {
			return deleted, err
		}
		deleted, items = deleted+int(changed), items[n:]
	}
	return deleted, nil
}

// Raise implements casstore.Sweeper.
func (p *Place) Raise(ctx context.Context, token uint64) error {
	_, err := p.DB.Change(ctx, p.Dialect.Raise(token))
	return err
}

// Extend implements casstore.Usual. One statement extends holds with the same TTL, at
// most Together of them. If a statement fails, the holds of other statements are still
// extended.
func (p *Place) Extend(ctx context.Context, claims []store.Claim, version int64) ([]bool, error) {
	done, order := make(map[string]bool, len(claims)), slices.Clone(claims)
	// All such statements lock rows in the same order, so that two of them do not wait
	// for each other.
	slices.SortFunc(order, func(a, b store.Claim) int {
		return cmp.Or(cmp.Compare(a.TTL, b.TTL), strings.Compare(a.Key, b.Key))
	})
	var failed error
	for len(order) > 0 {
		n := 1
		for n < min(len(order), p.Together) && order[n].TTL == order[0].TTL {
			n++
		}
		err := p.extend(ctx, order[:n], version, done)
		if err != nil && (failed == nil || errors.Is(failed, store.ErrUnavailable)) {
			failed = err // an error with an unknown outcome has precedence
		}
		order = order[n:]
	}
	answers := make([]bool, len(claims))
	for i, c := range claims {
		answers[i] = done[c.Key]
	}
	return answers, failed
}

// extend extends some holds in one statement. If the statement has changed only some of
// the rows, extend reads the rows with its version.
func (p *Place) extend(ctx context.Context, claims []store.Claim, version int64, done map[string]bool) error {
	n, err := p.DB.Change(ctx, p.Dialect.Extend(claims, claims[0].TTL, version))
	switch {
	case errors.Is(err, casstore.ErrConflict), err == nil && n == 0:
		return nil
	case err != nil:
		return err
	case n == int64(len(claims)):
		for _, c := range claims {
			done[c.Key] = true
		}
		return nil
	}
	err = p.DB.Query(ctx, p.Dialect.Extended(claims, version), func(scan Scan) error {
		var name []byte
		err := scan(&name)
		done[string(name)] = true
		return err
	})
	if err != nil {
		// The error has only the text of err, because the outcome is unknown.
		return fmt.Errorf("%d of %d were extended: %s", n, len(claims), err.Error())
	}
	return nil
}

// One reads the single row that a statement returns.
func One(ctx context.Context, db DB, st dialect.Statement, to ...any) error {
	n := 0
	err := db.Query(ctx, st, func(scan Scan) error { n++; return scan(to...) })
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows", n)
	}
	return err
}
