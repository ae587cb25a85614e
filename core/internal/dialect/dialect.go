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

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// SchemaVersion is the version of the tables that Schema makes.
const SchemaVersion = 7

// Dialect writes the statements for one kind of database. Load, List, Dead, Save, Take, Give,
// Extend, Raise and Delete are those of casstore's Place and its optional interfaces.
type Dialect interface {
	// Name returns the name of the database in errors.
	Name() string
	// Schema returns the statements that make the tables. Running them again changes nothing.
	Schema() []string
	// Lock keeps others from making the tables until the transaction ends. It may be empty.
	Lock() Statement
	// Version reads the version of the tables, after Schema. SetVersion writes it if they
	// are new.
	Version() Statement
	SetVersion(v int) Statement
	// Probes returns the faults that a database with the tables can have.
	Probes() []Probe
	// File reads the list of the databases of a connection: their numbers, names and files. The
	// first one is that of the tables, and its file is empty if it is in memory. File is empty where
	// a server has the database.
	File() Statement
	// Rights returns the rights that a user needs, a right to the schema first.
	Rights() []Right

	// Take's answer is the token: a row, or an insert ID if Numbered returns true. There is
	// no row, or the ID is 0, if it does not grant.
	Take(c store.Claim, version int64) Statement
	Numbered() bool
	// Give changes one row, or none.
	Give(c store.Claim, version int64) Statement
	// Extend extends the usual holds of claims by one TTL. It changes as many rows as were
	// held, and never makes a hold shorter.
	Extend(claims []store.Claim, ttl time.Duration, version int64) Statement
	// Extended reads the names of those of claims whose row has the version.
	Extended(claims []store.Claim, version int64) Statement
	// Load reads one row in the order of Row.Fields, also if key has none. Only Load reads the ID
	// of the tables, as ID does, and how many bytes a statement may have.
	Load(key string, w casstore.Want) Statement
	// List and Dead read rows without their values.
	List(after string, most int) Statement
	Dead(most int) Statement
	// Save changes one row, or none: none too if the server's time is not within a second
	// after that of old, as if a replica has answered whose clock differs. For a value of 32 MiB
	// it is another second. If old was no row
	// and there is one now, it may fail as for any other key that is there already.
	Save(key string, old, e casstore.Entry) Statement
	Raise(token uint64) Statement
	// Delete changes those rows that have the versions of items. It waits for no locked row.
	Delete(items []casstore.Item) Statement

	// ID reads the ID of the tables: a random one, of which a copy of the database has the same.
	ID() Statement
	// Inside reads, in the transaction of the caller, whether its isolation level is fit for a
	// Commit, and whether its tables are no logical replica, the ID and the version of these,
	// and how many bytes a statement may have.
	Inside() Statement
	// LoadLocked is Load in the transaction of the caller. It reads the newest row, without its
	// value, and keeps others from changing it. If key has no row it reads none. SaveLocked
	// changes that row.
	LoadLocked(key string) Statement
	SaveLocked(key string, old, e casstore.Entry) Statement
	// Proof is how a transaction of the caller shows that it is open.
	Proof() Proof
	// Idle is how a session shows that none is. It is empty where each statement looks for itself.
	Idle() Proof
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

// Proof is how a session shows whether a transaction is open in it. It changes nothing, whatever
// the answer is.
type Proof struct {
	Succeed []string // statements that have to succeed
	Fail    string   // one that has to fail, or ""
	True    string   // a query whose answer has to be true, or ""
	Unless  string   // a query whose answer is true if no proof is needed of this server, or ""
}

// savepoint proves a transaction where a savepoint does not begin one. MariaDB and MySQL fail
// at the second statement outside a transaction, PostgreSQL at the first.
var savepoint = []string{"SAVEPOINT lockkit", "RELEASE SAVEPOINT lockkit"}

// Statement is the text of a statement, and its arguments if it has any.
type Statement struct {
	Text string
	Args []any
}

// Size returns about how many bytes the statement has with its arguments.
func (st Statement) Size() int64 {
	size := len(st.Text)
	for _, arg := range st.Args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	return int64(size)
}

// SizeWith returns at least how many bytes a statement has that saves a value of n bytes.
func SizeWith(n int) int64 {
	if n <= maxLiteral {
		n *= 2
	}
	return int64(n)
}

// Row is a row as it is read.
type Row struct {
	Alone  bool // false: the session would not commit by itself
	Writes bool // false: the server does not write, as a replica does not
	Schema int  // the version of the tables
	ID     string
	Most   int64 // the bytes that a statement may have, 0 if that is not known

	name, lease, owner, state, value                       []byte
	now, floor, version, token, since, until, written, due int64
}

// Fields returns where to scan what Load, List and Dead read.
func (r *Row) Fields() []any {
	return []any{
		&r.Alone, &r.Writes, &r.Schema, &r.ID, &r.Most, &r.now, &r.floor, &r.name, &r.version, &r.token, &r.lease, &r.owner,
		&r.since, &r.until, &r.written, &r.due, &r.state, &r.value,
	}
}

// Item returns what has been scanned.
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

// at is the time of a column. 0 is the zero time.
func at(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

// micros is the column of a time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

const (
	// settled is how long after a Load a Save changes something, in microseconds, apart from the
	// time for its value.
	settled = 1_000_000
	// pace is how many bytes of a value arrive in a microsecond, on a slow network.
	pace = 32
)

// bucket is the unit of the column due, in microseconds: a row is swept some minutes after
// nothing of it is alive, so that few writes change the index.
const bucket = 300_000_000
