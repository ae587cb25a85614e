// Package dialect contains the SQL for the tables that store locks: one row for each
// key, changed by compare-and-set. It sends nothing. Stores that use this package
// exclude each other if they share a database.
//
// Except in a transaction of the caller, each statement is its own transaction, which
// commits without a COMMIT. A statement reads the time from the server, in microseconds
// since 1970, UTC. No statement depends on the time zone or the SQL mode of its session.
// MySQL's statements refuse READ-UNCOMMITTED, and PostgreSQL's can fail above READ
// COMMITTED. Other isolation levels do not matter.
package dialect

import (
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// SchemaVersion is the version of the tables that Schema creates.
const SchemaVersion = 7

// Dialect writes the statements for one kind of database. Load, List, Dead, Save, Take,
// Give, Extend, Raise and Delete implement the methods of casstore.Place and its
// optional interfaces.
type Dialect interface {
	// Name returns the name of the database for errors.
	Name() string
	// Server reads the version of the server. Outdated returns the fault of a version
	// that is too old, with its remedy, or "".
	Server() Statement
	Outdated(version string) string
	// Hidden reads the remedy if row-level security hides all rows of some of the
	// tables from the user, and otherwise "". The statement is empty if the database
	// has no row-level security.
	Hidden(tables ...string) Statement
	// Creation names the rights that the user of Schema needs.
	Creation() string
	// Schema returns the statements that create the tables. Running them again changes
	// nothing.
	Schema() []string
	// Lock keeps other processes from creating the tables until the end of the
	// transaction. It may be empty.
	Lock() Statement
	// Version reads the version of the tables, after Schema. SetVersion writes the
	// version of new tables.
	Version() Statement
	SetVersion(v int) Statement
	// Probes returns the faults that a database with the tables can have.
	Probes() []Probe
	// File reads the list of the databases of a connection: their numbers, names and
	// files. The first database has the tables. Its file is empty if the database is in
	// memory. File returns an empty Statement if the database is on a server.
	File() Statement
	// Rights returns the rights that a user needs. The right to the schema is the
	// first, if there is such a right.
	Rights() []Right

	// Take returns the token as a row, or as the insert ID if Numbered returns true. If
	// Take does not grant, there is no row, or the insert ID is 0.
	Take(c store.Claim, version int64) Statement
	Numbered() bool
	// Give changes one row, or none.
	Give(c store.Claim, version int64) Statement
	// Extend extends the usual holds of claims by one TTL. It changes one row for each
	// claim that is held, and never makes a hold shorter. It may leave out a row that
	// another transaction has locked.
	Extend(claims []store.Claim, ttl time.Duration, version int64) Statement
	// Extended reads the keys of the claims whose row has the version.
	Extended(claims []store.Claim, version int64) Statement
	// Load reads one row in the order of Row.Fields, even if key has no row. Unlike List
	// and Dead, it also reads the ID of the tables and the maximum length of a
	// statement.
	Load(key string, w casstore.Want) Statement
	// List and Dead read rows without their values.
	List(after string, most int) Statement
	Dead(most int) Statement
	// Save changes one row, or none. It changes a row only if the server's time is
	// within a second after old.Now. At any other time, a server with a different clock
	// may have read old. For each 32 MB of the value, Save allows one more second. If
	// old had no row, Save may fail with the error for an existing key.
	Save(key string, old, e casstore.Entry) Statement
	Raise(token uint64) Statement
	// Delete deletes the rows of items whose version is unchanged. If the server's time
	// is before the Now of an item, Delete deletes nothing. A server with another clock
	// may have read the items. Delete waits for no locked row, except on SQLite, where
	// a transaction locks the file.
	Delete(items []casstore.Item) Statement

	// ID reads the ID of the tables. The ID is random, and a copy of the database has
	// the same ID.
	ID() Statement
	// Inside reads six values in the transaction of the caller. The first reports
	// whether the transaction's isolation level is fit for a Commit. The second reports
	// whether the session uses the server's time. The third reports whether the tables
	// are the original, and not a logical replica. The others are the ID and the
	// version of the tables, and the maximum length of a statement.
	Inside() Statement
	// LoadLocked reads like Load, in the transaction of the caller. It reads the newest
	// row, without its value, and keeps other transactions from changing the row. If
	// key has no row, LoadLocked reads none. SaveLocked changes that row.
	LoadLocked(key string) Statement
	SaveLocked(key string, old, e casstore.Entry) Statement
	// Proof proves that a transaction of the caller is open.
	Proof() Proof
	// Idle proves that no transaction is open in a session. It is empty if each
	// statement checks that.
	Idle() Proof
	// Note records token as seen for resource, in the transaction of the caller, unless
	// a higher token is recorded. Seen then reads the highest token, and keeps other
	// transactions from changing it.
	Note(resource string, token uint64) Statement
	Seen(resource string) Statement
	// TokenRights names the rights of the caller's user for Note and Seen. CommitRights
	// names the rights for Inside, LoadLocked and SaveLocked. Both are "" if the
	// database has no users.
	TokenRights() string
	CommitRights() string
}

// Probe describes a possible fault of a database.
type Probe struct {
	If     string // an expression that is true if the database has the fault
	Advice string // a description of the fault and its remedy
}

// Proof shows whether a session has an open transaction. Whatever its result, it changes
// nothing.
type Proof struct {
	Succeed []string // statements that must succeed
	Fail    string   // a statement that must fail, or ""
	True    string   // a query whose answer must be true, or ""
	Unless  string   // a query whose answer is true if this server needs no proof, or ""
}

// savepoint proves a transaction on databases where a savepoint does not begin one.
// Outside a transaction, the second statement fails on MariaDB and MySQL, and the first
// on PostgreSQL.
var savepoint = []string{"SAVEPOINT lockkit", "RELEASE SAVEPOINT lockkit"}

// Statement is the text of a statement, with its arguments if it has any.
type Statement struct {
	Text string
	Args []any
}

// Size returns the approximate length of the statement in bytes, with its arguments.
func (st Statement) Size() int64 {
	size := len(st.Text)
	for _, arg := range st.Args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	return int64(size)
}

// SizeWith returns a lower bound of the bytes of a statement that saves a value of n
// bytes.
func SizeWith(n int) int64 {
	if n <= maxLiteral {
		n *= 2
	}
	return int64(n)
}

// Row holds a row of the table of locks.
type Row struct {
	Alone    bool // false: the session does not commit each statement
	Writes   bool // false: the server accepts no writes, for example as a replica
	Original bool // false: the newest row is wanted, and a subscription writes the table
	Schema   int  // the version of the tables
	ID       string
	Most     int64 // the maximum bytes of a statement; 0 if unknown

	name, lease, owner, state, value                       []byte
	now, floor, version, token, since, until, written, due int64
}

// Fields returns the variables for the columns that Load, List and Dead read.
func (r *Row) Fields() []any {
	return []any{
		&r.Alone, &r.Writes, &r.Original, &r.Schema, &r.ID, &r.Most, &r.now, &r.floor, &r.name, &r.version, &r.token, &r.lease, &r.owner,
		&r.since, &r.until, &r.written, &r.due, &r.state, &r.value,
	}
}

// Item returns the row that was scanned.
func (r *Row) Item() casstore.Item {
	e := casstore.Entry{Now: time.UnixMicro(r.now), Version: r.version}
	if r.version == 0 {
		e.Floor = uint64(r.floor)
		return casstore.Item{Entry: e}
	}
	e.State, e.Value, e.Due = r.state, r.value, time.UnixMicro(r.due*bucket)
	e.Alone = casstore.Alone{
		Token: uint64(r.token), Lease: string(r.lease), Owner: string(r.owner), Since: at(r.since), Until: at(r.until), Written: at(r.written),
	}
	return casstore.Item{Key: string(r.name), Entry: e}
}

// at returns the time of a column. 0 is the zero time.
func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// micros returns the value of a column for a time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// readAt returns the latest time at which items were read, in microseconds.
func readAt(items []casstore.Item) (us int64) {
	for _, item := range items {
		us = max(us, item.Now.UnixMicro())
	}
	return us
}

const (
	// settled limits the time between a Load and a Save that changes something, in
	// microseconds. For a long value a Save has more time.
	settled = 1_000_000
	// pace is the assumed speed of a slow network, in bytes per microsecond.
	pace = 32
)

// bucket is the unit of the column due, in microseconds. A row is swept some minutes
// after everything in it has expired. The unit is so coarse that few writes change the
// index.
const bucket = 300_000_000
