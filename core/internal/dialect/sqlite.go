package dialect

import (
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// SQLite is the dialect of SQLite 3.35 and later, whose clock counts milliseconds.
type SQLite struct{}

const (
	sqliteNow  = "(CAST(round((julianday('now')-2440587.5)*86400000) AS INTEGER)*1000)"
	sqliteHeld = "state IS NULL AND written<=" + sqliteNow + " AND until>" + sqliteNow
)

func (SQLite) text() *text {
	return &text{quote: [2]string{"X'", "'"}, mark: func(int) string { return "?" }}
}

// Name implements Dialect.
func (SQLite) Name() string { return "SQLite" }

// Numbered implements Dialect.
func (SQLite) Numbered() bool { return false }

// Schema implements Dialect.
func (SQLite) Schema() []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS lockkit_locks (
  name    BLOB NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  token   INTEGER NOT NULL,
  lease   BLOB,
  owner   BLOB,
  since   INTEGER NOT NULL,
  until   INTEGER NOT NULL,
  written INTEGER NOT NULL,
  due     INTEGER NOT NULL,
  state   BLOB,
  value   BLOB
) WITHOUT ROWID`,
		`CREATE INDEX IF NOT EXISTS lockkit_due ON lockkit_locks (due)`,
		`CREATE TABLE IF NOT EXISTS lockkit_seen (resource BLOB NOT NULL PRIMARY KEY, token INTEGER NOT NULL) WITHOUT ROWID`,
		`CREATE TABLE IF NOT EXISTS lockkit_version (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, token INTEGER NOT NULL, id TEXT NOT NULL)`,
		`INSERT OR IGNORE INTO lockkit_version (one, version, token, id) VALUES (1, 0, 0, hex(randomblob(16)))`,
	}
}

// Lock implements Dialect.
func (SQLite) Lock() Statement { return Statement{} }

// Version implements Dialect.
func (SQLite) Version() Statement { return Statement{Text: "SELECT version FROM lockkit_version"} }

// SetVersion implements Dialect.
func (SQLite) SetVersion(v int) Statement {
	return Statement{Text: "UPDATE lockkit_version SET version=" + strconv.Itoa(v) + " WHERE version=0"}
}

// Probes implements Dialect.
func (SQLite) Probes() []Probe {
	return []Probe{
		{"(SELECT journal_mode<>'wal' FROM pragma_journal_mode)", "readers and writers wait for each other: set journal_mode=WAL"},
		{"(SELECT synchronous<2 FROM pragma_synchronous)", "a crash can forget locks: set synchronous=FULL for each connection"},
		{"(SELECT timeout=0 FROM pragma_busy_timeout)", "a locked database is an error at once: set busy_timeout to 1000 for each connection"},
		{"(SELECT max(token) FROM lockkit_version)>" + sqliteNow + "+60000000", clockAdvice},
	}
}

// File implements Dialect. The statement locks nothing.
func (SQLite) File() Statement { return Statement{Text: "PRAGMA database_list"} }

// Rights implements Dialect. SQLite has no users.
func (SQLite) Rights() []Right { return nil }

// Take implements Dialect.
func (d SQLite) Take(c store.Claim, version int64) Statement {
	t, ttl, least := d.text(), c.TTL.Microseconds(), int64(c.MinToken)
	t.add("INSERT INTO lockkit_locks AS k (name,version,token,lease,owner,since,until,written,due) SELECT ")
	t.name(c.Key).add(",").num(version).add(",max(c.now,f.token+64,").num(least).add("),").name(c.Lease).add(",").name(c.Owner)
	t.add(",c.now,c.now+").num(ttl).add(",c.now,(c.now+").num(ttl).add(")/").num(bucket)
	t.add("+1 FROM (SELECT ", sqliteNow, " AS now) c,lockkit_version f WHERE ", ofThisVersion)
	t.add(" ON CONFLICT (name) DO UPDATE SET version=EXCLUDED.version,token=max(EXCLUDED.since,k.token+64,").num(least)
	t.add("),lease=EXCLUDED.lease,owner=EXCLUDED.owner,since=EXCLUDED.since,until=EXCLUDED.until,written=EXCLUDED.written,due=EXCLUDED.due")
	return t.add(" WHERE k.state IS NULL AND k.written<=EXCLUDED.since AND k.until<=EXCLUDED.since RETURNING token").end()
}

// Give implements Dialect.
func (d SQLite) Give(c store.Claim, version int64) Statement {
	t := d.text().add("UPDATE lockkit_locks SET version=").num(version).add(",lease=NULL,owner=NULL,written=", sqliteNow, ",until=", sqliteNow)
	return t.add(" WHERE name=").name(c.Key).add(" AND lease=").name(c.Lease).add(" AND ", sqliteHeld).end()
}

// Extend implements Dialect.
func (d SQLite) Extend(claims []store.Claim, ttl time.Duration, version int64) Statement {
	t, us := d.text(), ttl.Microseconds()
	t.add("UPDATE lockkit_locks SET version=").num(version).add(",written=", sqliteNow, ",until=max(until,", sqliteNow, "+").num(us)
	t.add("),due=max(due,(", sqliteNow, "+").num(us).add(")/").num(bucket).add("+1) WHERE ")
	return t.these(claims, "").add(" AND ", sqliteHeld).end()
}

// Extended implements Dialect.
func (d SQLite) Extended(claims []store.Claim, version int64) Statement {
	return d.text().written("lockkit_locks", claims, version).end()
}

func (d SQLite) rows(id string, value bool) *text {
	return d.text().add("SELECT true,true,true,f.version,", id, ",", sqliteNow, ",f.token", rowColumns, valueColumn(value), " FROM lockkit_version f ")
}

// Load implements Dialect.
func (d SQLite) Load(key string, w casstore.Want) Statement {
	return d.rows("f.id,0", w.Value).add("LEFT JOIN lockkit_locks k ON k.name=").name(key).end()
}

// List implements Dialect.
func (d SQLite) List(after string, most int) Statement {
	t := d.rows(noID, false).add("JOIN lockkit_locks k ON k.name>").name(after)
	return t.add(" ORDER BY k.name LIMIT ", strconv.Itoa(most)).end()
}

// Dead implements Dialect.
func (d SQLite) Dead(most int) Statement {
	t := d.rows(noID, false).add("JOIN lockkit_locks k ON k.due<=", sqliteNow, "/").num(bucket)
	return t.add(" ORDER BY k.due LIMIT ", strconv.Itoa(most)).end()
}

// Save implements Dialect.
func (d SQLite) Save(key string, old, e casstore.Entry) Statement {
	if old.Version == 0 {
		return d.text().insert("lockkit_locks", "lockkit_version", key, &old, &e).soon(sqliteNow, &old, &e).add(" ON CONFLICT (name) DO NOTHING").end()
	}
	return d.text().update("lockkit_locks", key, &old, &e).soon(sqliteNow, &old, &e).end()
}

// Raise implements Dialect.
func (d SQLite) Raise(token uint64) Statement {
	return d.text().add("UPDATE lockkit_version SET token=max(token,").num(int64(token)).add(")").end()
}

// Delete implements Dialect.
func (d SQLite) Delete(items []casstore.Item) Statement {
	t := d.text().add("DELETE FROM lockkit_locks WHERE (name,version) IN (VALUES ")
	for i, item := range items {
		if i > 0 {
			t.add(",")
		}
		t.add("(").name(item.Key).add(",").num(item.Version).add(")")
	}
	return t.add(") AND ", sqliteNow, ">=").num(readAt(items)).end()
}

// ID implements Dialect.
func (SQLite) ID() Statement { return Statement{Text: "SELECT id FROM lockkit_version"} }

// Inside implements Dialect.
func (SQLite) Inside() Statement {
	return Statement{Text: "SELECT true,true,true,id,version,0 FROM lockkit_version"}
}

// LoadLocked implements Dialect. It keeps others from writing only in a transaction that
// began IMMEDIATE. Otherwise SaveLocked fails if another connection has written between
// the transaction's first read and its first write.
func (d SQLite) LoadLocked(key string) Statement {
	return d.text().add(thisVersion, sqliteNow, ",0", rowColumns, ",NULL FROM lockkit_locks k WHERE k.name=").name(key).end()
}

// SaveLocked implements Dialect.
func (d SQLite) SaveLocked(key string, old, e casstore.Entry) Statement {
	return d.text().update("lockkit_locks", key, &old, &e).end()
}

// sqliteBegin fails in a transaction. A script stops at its first error. So the ROLLBACK
// only ends a transaction that this script has begun.
const sqliteBegin = "BEGIN;ROLLBACK"

// Proof implements Dialect. A savepoint cannot prove an open transaction, because
// outside a transaction it begins one.
func (SQLite) Proof() Proof { return Proof{Fail: sqliteBegin} }

// Idle implements Dialect.
func (SQLite) Idle() Proof { return Proof{Succeed: []string{sqliteBegin}} }

// Note implements Dialect.
func (d SQLite) Note(resource string, token uint64) Statement {
	t := d.text().add("INSERT INTO lockkit_seen AS s (resource,token) VALUES (").name(resource).add(",").num(int64(token))
	return t.add(") ON CONFLICT (resource) DO UPDATE SET token=max(s.token,EXCLUDED.token)").end()
}

// Seen implements Dialect.
func (d SQLite) Seen(resource string) Statement {
	return d.text().add("SELECT token FROM lockkit_seen WHERE resource=").name(resource).end()
}
