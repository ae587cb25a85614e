// Package dialect has the SQL of the tables that keep locks: one row for each key, changed
// by compare-and-set. It sends nothing. Stores of one database that use it exclude each
// other.
//
// Each statement is for a transaction of its own that commits by itself. Its time is the
// server's, read in the statement, in microseconds since 1970, UTC. No statement depends on the
// isolation level, the time zone or the SQL mode of its session.
package dialect

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// SchemaVersion is the version of the tables that Schema makes.
const SchemaVersion = 7

// Dialect writes the statements for one kind of database.
type Dialect interface {
	// Name is the name of the database in errors.
	Name() string
	// Schema returns the statements that make the tables. Running them again changes nothing.
	Schema() []string
	// Lock keeps others from making the tables, until the transaction ends; it may be empty.
	Lock() Statement
	// Version reads the version of the tables, after Schema. SetVersion writes it.
	Version() Statement
	SetVersion(v int) Statement
	// Probes are what speaks against a database that has the tables.
	Probes() []Probe
	// Take grants the usual claim c if its key is free. It gives a row that is new the
	// version fresh. The answer is the token: a row, or an insert ID where Numbered is true.
	// There is no row, or the ID is 0, if it does not grant.
	Take(c store.Claim, fresh int64) Statement
	// Numbered reports whether the answer of Take is an insert ID.
	Numbered() bool
	// Give releases the usual hold of c. It changes one row if there was one, else none.
	Give(c store.Claim) Statement
	// Extend extends the usual holds of claims by one TTL. It changes as many rows as were
	// held, and never makes a hold shorter.
	Extend(claims []store.Claim, ttl time.Duration) Statement
	// Load reads one row, in the order of Row.Fields, also if key has none. It reads the
	// answer only if it is wanted.
	Load(key string, answer bool) Statement
	// Save writes r over the row of key that Load has read as old. It changes one row if
	// that is still there, else none. If old was no row and there is one now, it fails as
	// for any other key that is there already.
	Save(key string, old, r Row) Statement
	// Note keeps token as seen for resource if none higher is, in the transaction of the
	// caller. Seen reads the highest one then, and keeps others from noting meanwhile.
	Note(resource string, token uint64) Statement
	Seen(resource string) Statement
}

// Probe is a fault that a database can have.
type Probe struct {
	If     string // an expression that is true if it has the fault
	Advice string // what is wrong, and what to do about it
}

// Statement is the text of a statement, and its arguments if it has any.
type Statement struct {
	Text string
	Args []any
}

// Row is what is kept of one key.
type Row struct {
	Alone   bool   // false: the session would not commit by itself
	Now     int64  // the server's time when the row was loaded
	Floor   int64  // the highest token of all rows that were deleted until then
	Version int64  // changed by each write, never used twice for a key; 0: there is no row
	Token   int64  // of the last grant, or Floor
	Lease   []byte // of the usual hold; nil: there is none
	Owner   []byte
	Since   int64
	Until   int64  // when nothing of the row is alive any more
	Written int64  // the time of the last write: a clock behind it was set back
	State   []byte // everything else; nil: the usual hold is all there is
	Answer  []byte
	// Keep has Save leave the answer as it is.
	Keep bool
}

// Fields returns where to scan what Load reads.
func (r *Row) Fields() []any {
	return []any{
		&r.Alone, &r.Now, &r.Floor, &r.Version, &r.Token, &r.Lease, &r.Owner, &r.Since, &r.Until, &r.Written, &r.State, &r.Answer,
	}
}

// maxName is the length of the columns lease and owner.
const maxName = 255

// Usual reports whether c is the usual claim, for a whole key and no more than that.
func Usual(c *store.Claim) bool {
	return c.Weight == store.All && c.Limit == store.All && c.Record == nil && !c.Undo && c.Keep == 0 &&
		len(c.Lease) <= maxName && len(c.Owner) <= maxName
}

// bucket is the unit of the column due, in microseconds: a row is swept some minutes after
// nothing of it is alive, so that few writes change the index.
const bucket = 300_000_000
