package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// PostgreSQL is the dialect of PostgreSQL 14 and later. Its statements give operands
// exactly the types of the system's operators. For other types an operator in the search
// path might match better.
type PostgreSQL struct {
	// Literal makes the values literals, so that the statements have no arguments, as
	// the simple protocol needs.
	Literal bool
}

// durable and fast are tables of one row with the server's time. Their settings last as
// long as the transaction. The settings limit the wait for the lock of a row, and
// decide whether the commit waits for the disk. A commit that grants or saves something
// must wait.
const (
	durable = "(SELECT pg_catalog.set_config('lock_timeout','1000',true)," + onDisk + "," + postgresNow + " AS now)"
	fast    = "(SELECT pg_catalog.set_config('lock_timeout','1000',true),pg_catalog.set_config('synchronous_commit','off',true)," +
		postgresNow + " AS now)"
)

const (
	onDisk = "pg_catalog.set_config('synchronous_commit'," +
		"CASE pg_catalog.current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE pg_catalog.current_setting('synchronous_commit') END,true)"
	postgresNow  = "(extract(epoch FROM pg_catalog.clock_timestamp())*1000000::numeric)::bigint"
	postgresHeld = "k.state IS NULL AND k.written<=c.now AND k.until>c.now"
)

func (d PostgreSQL) text() *text {
	t := &text{quote: [2]string{"pg_catalog.decode('", "','hex')"}, bin: "::bytea", int: "::bigint", most: math.MaxInt}
	if !d.Literal {
		t.mark = func(n int) string { return "$" + strconv.Itoa(n) }
	}
	return t
}

// Name implements Dialect.
func (PostgreSQL) Name() string { return "PostgreSQL" }

// Numbered implements Dialect.
func (PostgreSQL) Numbered() bool { return false }

// Schema implements Dialect.
func (PostgreSQL) Schema() []string {
	return []string{
		`CREATE SCHEMA IF NOT EXISTS lockkit`,
		`CREATE TABLE IF NOT EXISTS lockkit.locks (
  name    bytea PRIMARY KEY,
  version bigint NOT NULL,
  token   bigint NOT NULL,
  lease   bytea,
  owner   bytea,
  since   bigint NOT NULL,
  until   bigint NOT NULL,
  written bigint NOT NULL,
  due     bigint NOT NULL,
  state   bytea,
  value   bytea
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.2)`,
		`CREATE INDEX IF NOT EXISTS locks_due ON lockkit.locks (due)`,
		`CREATE TABLE IF NOT EXISTS lockkit.seen (resource text COLLATE "C" PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 80)`,
		`CREATE TABLE IF NOT EXISTS lockkit.version (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, token bigint NOT NULL, id text NOT NULL)`,
		`INSERT INTO lockkit.version (version, token, id) VALUES (0, 0, pg_catalog.gen_random_uuid()) ON CONFLICT DO NOTHING`,
	}
}

// Lock implements Dialect.
func (PostgreSQL) Lock() Statement {
	return Statement{Text: "SELECT pg_catalog.pg_advisory_xact_lock(30518592021883252)"}
}

// Version implements Dialect.
func (PostgreSQL) Version() Statement { return Statement{Text: "SELECT version FROM lockkit.version"} }

// SetVersion implements Dialect.
func (PostgreSQL) SetVersion(v int) Statement {
	return Statement{Text: "UPDATE lockkit.version SET version=" + strconv.Itoa(v) + " WHERE version=0"}
}

// Probes implements Dialect.
func (PostgreSQL) Probes() []Probe {
	return []Probe{
		{"pg_catalog.pg_is_in_recovery()", "the server is a standby: connect to the primary (target_session_attrs=read-write)"},
		{"pg_catalog.current_setting('transaction_read_only')='on'", "transactions are read-only by default: set default_transaction_read_only = off for this user"},
		{"pg_catalog.current_setting('fsync')='off'", "a crash can forget every lock: set fsync = on"},
		{
			"EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid=c.relnamespace " +
				"WHERE n.nspname='lockkit' AND c.relkind='r' AND c.relpersistence<>'p')",
			"a table of the schema lockkit is not logged, a crash forgets every lock: ALTER TABLE … SET LOGGED",
		},
		{
			"EXISTS (SELECT FROM pg_catalog.pg_subscription_rel r JOIN pg_catalog.pg_class c ON c.oid=r.srrelid " +
				"JOIN pg_catalog.pg_namespace n ON n.oid=c.relnamespace WHERE n.nspname='lockkit')",
			"a subscription writes the tables of the schema lockkit, and calls that need the newest row are refused: connect to the origin. " +
				"If this server has replaced it, " + dropSubscription,
		},
		{"(SELECT max(token) FROM lockkit.version)>" + postgresNow + "+60000000", clockAdvice},
	}
}

// File implements Dialect.
func (PostgreSQL) File() Statement { return Statement{} }

// Rights implements Dialect. The server refuses to look up a name in a schema without
// the right to the schema.
func (PostgreSQL) Rights() []Right {
	usage := Right{"SELECT 'lockkit.version'::regclass", "GRANT USAGE ON SCHEMA lockkit"}
	return append([]Right{usage}, rightsOn("lockkit.locks", "lockkit.version")...)
}

// Take implements Dialect.
func (d PostgreSQL) Take(c store.Claim, version int64) Statement {
	t, ttl, least := d.text(), c.TTL.Microseconds(), int64(c.MinToken)
	t.add("INSERT INTO lockkit.locks AS k (name,version,token,lease,owner,since,until,written,due) SELECT ")
	t.name(c.Key).add(",").num(version).add(",GREATEST(c.now,f.token+64,").num(least).add("),").name(c.Lease).add(",").name(c.Owner)
	t.add(",c.now,c.now+").num(ttl).add(",c.now,(c.now+").num(ttl).add(")/").num(bucket).add("+1 FROM ", durable, " c,lockkit.version f WHERE ", ofThisVersion)
	t.add(" ON CONFLICT (name) DO UPDATE SET version=EXCLUDED.version,token=GREATEST(EXCLUDED.since,k.token+64,").num(least)
	t.add("),lease=EXCLUDED.lease,owner=EXCLUDED.owner,since=EXCLUDED.since,until=EXCLUDED.until,written=EXCLUDED.written,due=EXCLUDED.due")
	return t.add(" WHERE k.state IS NULL AND k.written<=EXCLUDED.since AND k.until<=EXCLUDED.since RETURNING k.token").end()
}

// Give implements Dialect.
func (d PostgreSQL) Give(c store.Claim, version int64) Statement {
	t := d.text().add("UPDATE lockkit.locks k SET version=").num(version).add(",lease=NULL,owner=NULL,written=c.now,until=c.now FROM ", fast, " c")
	return t.add(" WHERE k.name=").name(c.Key).add(" AND k.lease=").name(c.Lease).add(" AND ", postgresHeld).end()
}

// Extend implements Dialect. A row that another transaction has locked does not delay
// the extension of other rows.
func (d PostgreSQL) Extend(claims []store.Claim, ttl time.Duration, version int64) Statement {
	t, us := d.text(), ttl.Microseconds()
	t.add("WITH c AS MATERIALIZED ", durable, ",l AS MATERIALIZED (SELECT name FROM lockkit.locks WHERE ").these(claims, "")
	t.add(" ORDER BY name FOR UPDATE SKIP LOCKED) UPDATE lockkit.locks k SET version=").num(version).add(",written=c.now,until=GREATEST(k.until,c.now+")
	t.num(us).add("),due=GREATEST(k.due,(c.now+").num(us).add(")/").num(bucket)
	return t.add("+1) FROM c,l WHERE k.name=l.name AND ").these(claims, "k.").add(" AND ", postgresHeld).end()
}

// Extended implements Dialect.
func (d PostgreSQL) Extended(claims []store.Claim, version int64) Statement {
	return d.text().written("lockkit.locks", claims, version).end()
}

// rows begins the statements that read rows. The expression original is true if no
// subscription writes the table.
func (d PostgreSQL) rows(original, id string, value bool) *text {
	return d.text().add("SELECT true,", isPrimary, ",", original, ",f.version,", id, ",", postgresNow, ",f.token", rowColumns, valueColumn(value), "::bytea FROM lockkit.version f ")
}

// isPrimary is false on a standby. isOriginal is false in a logical replica, a table
// that a subscription writes. Every user may read the list of these tables.
const (
	isPrimary  = "NOT pg_catalog.pg_is_in_recovery()"
	isOriginal = "NOT EXISTS (SELECT FROM pg_catalog.pg_subscription_rel r WHERE r.srrelid=f.tableoid)"
)

// dropSubscription has the statements that end a subscription whose origin is gone. A
// DROP alone would fail, because it also drops the slot of the origin. Without a DROP a
// disabled subscription can be continued, so its tables still count as a replica's.
const dropSubscription = "ALTER SUBSCRIPTION … DISABLE, ALTER SUBSCRIPTION … SET (slot_name = NONE) and DROP SUBSCRIPTION …"

// Load implements Dialect. With Current it also checks that the table is not a logical
// replica, which may lack the newest row.
func (d PostgreSQL) Load(key string, w casstore.Want) Statement {
	original := "true"
	if w.Current {
		original = isOriginal
	}
	return d.rows(original, "f.id,0", w.Value).add("LEFT JOIN lockkit.locks k ON k.name=").name(key).end()
}

// List implements Dialect.
func (d PostgreSQL) List(after string, most int) Statement {
	t := d.rows("true", noID, false).add("JOIN lockkit.locks k ON k.name>").name(after)
	return t.add(" ORDER BY k.name LIMIT ", strconv.Itoa(most)).end()
}

// Dead implements Dialect.
func (d PostgreSQL) Dead(most int) Statement {
	t := d.rows("true", noID, false).add("JOIN lockkit.locks k ON k.due<=(SELECT ", postgresNow, ")/").num(bucket)
	return t.add(" ORDER BY k.due LIMIT ", strconv.Itoa(most)).end()
}

// Save implements Dialect.
func (d PostgreSQL) Save(key string, old, e casstore.Entry) Statement {
	t := d.text().add("WITH c AS MATERIALIZED ", durable, " ")
	if old.Version == 0 {
		return t.insert("lockkit.locks", "c,lockkit.version", key, &old, &e).soon("c.now", &old, &e).add(" ON CONFLICT (name) DO NOTHING").end()
	}
	return t.update("lockkit.locks", key, &old, &e).soon("(SELECT now FROM c)", &old, &e).wake(key, e.Wake).end()
}

// Channel is the channel on which PostgreSQL notifies waiting claims, in the transaction
// that wakes them. A store that listens there receives the notifications for all claims.
const Channel = "lockkit"

// WakeUp returns the notification for the claim of lease that waits for key. It reveals
// neither key nor lease, because every user of the database can listen.
func WakeUp(key, lease string) string {
	sum := sha256.Sum256([]byte(key + "\x00" + lease))
	return hex.EncodeToString(sum[:16])
}

// wake makes a statement that has changed a row notify the claims of leases. While half
// of the queue of notifications is full, for example because of a stuck listener, wake
// sends no notification. With a full queue, the statement would fail.
func (t *text) wake(key string, leases []string) *text {
	if len(leases) == 0 {
		return t
	}
	t.add(" RETURNING CASE WHEN pg_catalog.pg_notification_queue_usage()<0.5::float8 THEN (SELECT pg_catalog.count(pg_catalog.pg_notify('" + Channel + "',w)::text)" +
		" FROM pg_catalog.unnest(ARRAY[")
	for i, lease := range leases {
		if i > 0 {
			t.add(",")
		}
		t.word(WakeUp(key, lease))
	}
	return t.add("]) w) END")
}

// Raise implements Dialect.
func (d PostgreSQL) Raise(token uint64) Statement {
	t := d.text().add("UPDATE lockkit.version f SET token=GREATEST(f.token,").num(int64(token))
	return t.add(") FROM ", durable, " c").end()
}

// Delete implements Dialect. The names and the versions are two arrays, so that the text
// of the prepared statement does not depend on the number of rows.
func (d PostgreSQL) Delete(items []casstore.Item) Statement {
	names, versions := []byte("{"), []byte("{")
	for i, item := range items {
		if i > 0 {
			names, versions = append(names, ','), append(versions, ',')
		}
		names = hex.AppendEncode(names, []byte(item.Key))
		versions = strconv.AppendInt(versions, item.Version, 10)
	}
	t := d.text().add("WITH c AS MATERIALIZED ", fast, ",l AS MATERIALIZED (SELECT k.name FROM unnest(").word(string(names) + "}")
	t.add("::text[],").word(string(versions) + "}").add("::bigint[]) d(name,version) JOIN lockkit.locks k ON k.name=pg_catalog.decode(d.name,'hex')")
	return t.add(" AND k.version=d.version FOR UPDATE OF k SKIP LOCKED) DELETE FROM lockkit.locks k USING c,l WHERE k.name=l.name AND c.now>=").num(readAt(items)).end()
}

// ID implements Dialect.
func (PostgreSQL) ID() Statement { return Statement{Text: "SELECT id FROM lockkit.version"} }

// Inside implements Dialect. Above READ COMMITTED, the transaction may read the row
// without its last extension, and then cannot write the row. A logical replica has the
// ID of its origin.
func (PostgreSQL) Inside() Statement {
	return Statement{Text: "SELECT pg_catalog.current_setting('transaction_isolation') IN ('read committed','read uncommitted'),true," +
		isOriginal + ",f.id,f.version,0 FROM lockkit.version f"}
}

// LoadLocked implements Dialect.
func (d PostgreSQL) LoadLocked(key string) Statement {
	t := d.text().add(thisVersion, postgresNow, ",0::bigint", rowColumns, ",NULL::bytea FROM lockkit.locks k WHERE k.name=").name(key)
	return t.add(" FOR UPDATE").end()
}

// SaveLocked implements Dialect. It makes the commit of the caller wait for the disk.
func (d PostgreSQL) SaveLocked(key string, old, e casstore.Entry) Statement {
	t := d.text().add("WITH c AS MATERIALIZED (SELECT ", onDisk, " AS commit) ")
	return t.update("lockkit.locks", key, &old, &e).add(" AND (SELECT c.commit FROM c)<>''").wake(key, e.Wake).end()
}

// Proof implements Dialect.
func (PostgreSQL) Proof() Proof { return Proof{Succeed: savepoint} }

// Idle implements Dialect. A setting for a transaction is gone with the next statement,
// unless both statements are in one transaction.
func (PostgreSQL) Idle() Proof {
	return Proof{
		Succeed: []string{"SELECT pg_catalog.set_config('lockkit.open','yes',true)"},
		True:    "SELECT pg_catalog.current_setting('lockkit.open',true) IS DISTINCT FROM 'yes'",
	}
}

// Note implements Dialect.
func (d PostgreSQL) Note(resource string, token uint64) Statement {
	t := d.text().add("INSERT INTO lockkit.seen AS s (resource,token) VALUES (").arg(resource, "").add(",").num(int64(token))
	return t.add(") ON CONFLICT (resource) DO UPDATE SET token=GREATEST(s.token,EXCLUDED.token)").end()
}

// Seen implements Dialect.
func (d PostgreSQL) Seen(resource string) Statement {
	return d.text().add("SELECT token FROM lockkit.seen WHERE resource=").arg(resource, "").add(" FOR UPDATE").end()
}
