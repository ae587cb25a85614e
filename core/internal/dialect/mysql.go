package dialect

import (
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// MySQL is the dialect of MariaDB 10.6 and later, and of MySQL 8.0 and later.
//
// An update on these servers assigns to columns from left to right, and later
// expressions read the assigned values. So the columns in the conditions are assigned
// last. The token of a grant is returned as LAST_INSERT_ID, because the number of
// changed rows depends on the flag clientFoundRows.
type MySQL struct{}

const (
	mysqlNow = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"
	// mysqlWait limits the wait for the lock of a row to a second; the default is 50 s.
	// MySQL reads mysqlWait as a comment.
	mysqlWait = "/*M! SET STATEMENT innodb_lock_wait_timeout=1 FOR */ "
	// mysqlNoWait makes a statement fail at once if a row is locked. A grant also reads,
	// and so locks, the row of the version. Because a grant does not wait, it does not
	// delay a statement that raises the floor. MySQL reads mysqlNoWait as a comment.
	mysqlNoWait = "/*M! SET STATEMENT innodb_lock_wait_timeout=0 FOR */ "
	// mysqlNewest makes a locking read return the newest row, even in a transaction
	// with an older snapshot. MySQL always reads the newest row. Without mysqlNewest,
	// MariaDB 11.6.2 and later would end that transaction with error 1020 if the
	// watchdog has written to the row meanwhile.
	mysqlNewest = "/*M!110602 SET STATEMENT innodb_snapshot_isolation=0 FOR */ "
	// mysqlAlone is true if the session commits each statement and reads only committed
	// rows. An uncommitted answer of a Commit can still be rolled back. Only MariaDB can
	// also check that no transaction is open.
	mysqlAlone = "@@autocommit=1/*M! AND @@in_transaction=0 AND @@tx_isolation<>'READ-UNCOMMITTED'*/" +
		"/*!80000 AND @@transaction_isolation<>'READ-UNCOMMITTED'*/ AND " + mysqlTimely
	// mysqlTimely is true unless the session has a time of its own. The variable
	// timestamp of a session can set NOW, but not SYSDATE, which is the time of its own
	// evaluation. A statement can wait for a row between these two times, but a call for
	// a lock takes at most two seconds.
	mysqlTimely = "SYSDATE(6) BETWEEN NOW(6) AND NOW(6)+INTERVAL 2 SECOND"
	mysqlHeld   = "state IS NULL AND written<=" + mysqlNow + " AND until>" + mysqlNow
	// mysqlFree is correct only before the columns written and until are assigned.
	mysqlFree = "lockkit_locks.state IS NULL AND lockkit_locks.written<=" + mysqlNow + " AND lockkit_locks.until<=" + mysqlNow
)

func (MySQL) text() *text { return &text{quote: [2]string{"X'", "'"}, most: maxLiteral} }

// Name implements Dialect.
func (MySQL) Name() string { return "MySQL" }

// Numbered implements Dialect.
func (MySQL) Numbered() bool { return true }

// Schema implements Dialect.
func (MySQL) Schema() []string {
	const options = " ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=binary"
	return []string{
		`CREATE TABLE IF NOT EXISTS lockkit_locks (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL,
  token BIGINT NOT NULL,
  lease VARBINARY(255),
  owner VARBINARY(255),
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  written BIGINT NOT NULL,
  due BIGINT NOT NULL,
  state LONGBLOB,
  value LONGBLOB,
  KEY lockkit_due (due)
)` + options,
		`CREATE TABLE IF NOT EXISTS lockkit_seen (resource VARBINARY(512) NOT NULL PRIMARY KEY, token BIGINT NOT NULL)` + options,
		`CREATE TABLE IF NOT EXISTS lockkit_version (one INT NOT NULL PRIMARY KEY, version INT NOT NULL, token BIGINT NOT NULL, id VARBINARY(36) NOT NULL)` + options,
		`INSERT IGNORE INTO lockkit_version (one, version, token, id) VALUES (1, 0, 0, UUID())`,
	}
}

// Lock implements Dialect.
func (MySQL) Lock() Statement { return Statement{} }

// Version implements Dialect.
func (MySQL) Version() Statement { return Statement{Text: "SELECT version FROM lockkit_version"} }

// SetVersion implements Dialect.
func (MySQL) SetVersion(v int) Statement {
	return Statement{Text: "UPDATE lockkit_version SET version=" + strconv.Itoa(v) + " WHERE version=0"}
}

// Probes implements Dialect.
func (MySQL) Probes() []Probe {
	return []Probe{
		{"@@autocommit=0", "autocommit is off, no lock would be committed: set autocommit=1 in the DSN"},
		{
			"SLEEP(0.001)=0 AND SYSDATE(6)=NOW(6)",
			"SYSDATE is NOW, so a session with a time of its own would not be noticed: start the server without sysdate_is_now",
		},
		{"@@global.read_only<>0", "the server is read-only, perhaps a replica: connect to the primary"},
		{"@@global.innodb_flush_log_at_trx_commit<>1", "a crash can forget locks: set innodb_flush_log_at_trx_commit=1"},
		// With a binary log, InnoDB does not flush the last phase of a commit. After a
		// crash of the machine the server reads from the log which transactions were
		// committed.
		{"@@global.log_bin=1 AND @@global.sync_binlog<>1", "a crash of the machine can forget locks: set sync_binlog=1"},
		{
			"EXISTS (SELECT * FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name LIKE 'lockkit%' AND engine<>'InnoDB')",
			"a table is not of InnoDB: ALTER TABLE … ENGINE=InnoDB",
		},
		{
			"/*M! EXISTS (SELECT * FROM information_schema.global_variables WHERE variable_name='WSREP_ON' AND variable_value='ON') OR */ 1=0",
			"several servers of a Galera cluster may write, each by a clock of its own: send all statements to one",
		},
		{
			"/*!80000 EXISTS (SELECT * FROM performance_schema.global_variables WHERE " +
				"variable_name='group_replication_single_primary_mode' AND variable_value='OFF') OR */ 1=0",
			"several servers of a group may write, each by a clock of its own: set group_replication_single_primary_mode=ON",
		},
		{
			"EXISTS (SELECT * FROM information_schema.columns WHERE table_schema=DATABASE() AND (table_name='lockkit_locks' AND (" +
				"column_name IN ('name','lease','owner') AND (data_type<>'varbinary' OR character_maximum_length<IF(column_name='name',512,255))" +
				" OR column_name IN ('state','value') AND data_type<>'longblob') OR table_name='lockkit_seen' AND column_name='resource' AND data_type<>'varbinary'))",
			"a column has another type than bytes, which compares other names as equal, or is too short: make the tables by Migrate or Schema",
		},
		{
			"@@max_allowed_packet<1048576",
			"a statement for many keys can be too long, and so can an answer, which needs its length: set max_allowed_packet=16M or more",
		},
		{
			"/*M! @@global.log_bin=1 AND @@binlog_format='STATEMENT' OR */ /*!80000 @@global.log_bin=1 AND EXISTS (SELECT * FROM " +
				"performance_schema.session_variables WHERE variable_name='binlog_format' AND variable_value='STATEMENT') OR */ 1=0",
			BinlogAdvice,
		},
		{
			"/*!80000 @@innodb_lock_wait_timeout>2 OR */ 1=0",
			"a locked row holds up a session for longer than a call takes: set innodb_lock_wait_timeout=1 in the DSN",
		},
		{"(SELECT MAX(token) FROM lockkit_version)>" + mysqlNow + "+60000000", clockAdvice},
	}
}

// File implements Dialect.
func (MySQL) File() Statement { return Statement{} }

// Rights implements Dialect.
func (MySQL) Rights() []Right { return rightsOn("lockkit_locks", "lockkit_version") }

// BinlogAdvice is the advice for a server that replicates statements as text. At READ
// COMMITTED such a server refuses the statements.
const BinlogAdvice = "statements are replicated as text, and a replica that takes over can have other locks: set binlog_format=ROW"

// Take implements Dialect.
func (d MySQL) Take(c store.Claim, version int64) Statement {
	t, ttl, least := d.text(), c.TTL.Microseconds(), int64(c.MinToken)
	t.add(mysqlNoWait, "INSERT INTO lockkit_locks (name,version,token,lease,owner,since,until,written,due) SELECT ")
	t.name(c.Key).add(",").num(version).add(",LAST_INSERT_ID(GREATEST(", mysqlNow, ",f.token+64,").num(least).add(")),")
	t.name(c.Lease).add(",").name(c.Owner).add(",", mysqlNow, ",", mysqlNow, "+").num(ttl).add(",", mysqlNow, ",").mysqlDue(ttl)
	t.add(" FROM lockkit_version f WHERE ", ofThisVersion, " AND ", mysqlAlone, " ON DUPLICATE KEY UPDATE ")
	// A refusal sets LAST_INSERT_ID to 0, because the insert has set it to its token.
	t.add("token=IF(", mysqlFree, ",LAST_INSERT_ID(GREATEST(", mysqlNow, ",lockkit_locks.token+64,").num(least)
	t.add(")),lockkit_locks.token+LAST_INSERT_ID(0))")
	for _, cell := range []cell{
		{"version", func(t *text) { t.num(version) }},
		{"lease", func(t *text) { t.name(c.Lease) }},
		{"owner", func(t *text) { t.name(c.Owner) }},
		{"since", func(t *text) { t.add(mysqlNow) }},
		{"due", func(t *text) { t.mysqlDue(ttl) }},
		{"until", func(t *text) { t.add(mysqlNow, "+").num(ttl) }},
	} {
		t.add(",", cell.column, "=IF(", mysqlFree, ",")
		cell.add(t)
		t.add(",lockkit_locks.", cell.column, ")")
	}
	// The claim was granted if the row now has this lease and this deadline.
	t.add(",written=IF(lockkit_locks.lease=").name(c.Lease).add(" AND lockkit_locks.until=", mysqlNow, "+").num(ttl)
	return t.add(",", mysqlNow, ",lockkit_locks.written)").end()
}

// mysqlDue adds the value of due for a row that lives for ttl from now.
func (t *text) mysqlDue(ttl int64) *text {
	return t.add("(", mysqlNow, "+").num(ttl).add(") DIV ").num(bucket).add("+1")
}

// Give implements Dialect.
func (d MySQL) Give(c store.Claim, version int64) Statement {
	t := d.text().add(mysqlWait, "UPDATE lockkit_locks SET version=").num(version).add(",lease=NULL,owner=NULL,written=", mysqlNow, ",until=", mysqlNow)
	t.add(" WHERE name=").name(c.Key).add(" AND lease=").name(c.Lease)
	return t.add(" AND ", mysqlHeld, " AND ", mysqlAlone).end()
}

// mysqlRows makes MySQL find rows by their names. For a small table MySQL would prefer
// to read, and lock, every row.
const mysqlRows = " FORCE INDEX (PRIMARY)"

// Extend implements Dialect. A row that another transaction has locked does not delay
// the extension of other rows. Because of the LIMIT the inner query runs first, as a
// separate step, and locks the rows that are free.
func (d MySQL) Extend(claims []store.Claim, ttl time.Duration, version int64) Statement {
	t, us := d.text(), ttl.Microseconds()
	t.add(mysqlNoWait, "UPDATE (SELECT name FROM lockkit_locks", mysqlRows, " WHERE ").these(claims, "").add(" AND ", mysqlHeld, " AND ", mysqlAlone)
	t.add(" LIMIT ", strconv.Itoa(len(claims)), " FOR UPDATE SKIP LOCKED) l STRAIGHT_JOIN lockkit_locks k", mysqlRows, " ON k.name=l.name SET k.version=").num(version)
	t.add(",k.due=GREATEST(k.due,").mysqlDue(us).add("),k.written=", mysqlNow, ",k.until=GREATEST(k.until,", mysqlNow, "+")
	return t.num(us).add(")").end()
}

// Extended implements Dialect.
func (d MySQL) Extended(claims []store.Claim, version int64) Statement {
	return d.text().written("lockkit_locks", claims, version).end()
}

func (d MySQL) rows(id string, value bool) *text {
	return d.text().add("SELECT ", mysqlAlone, ",@@global.read_only=0,1=1,f.version,", id, ",", mysqlNow, ",f.token", rowColumns, valueColumn(value), " FROM lockkit_version f ")
}

// Load implements Dialect. With Current it reads the newest row with a lock, as for a
// write. Proxies that send reads to replicas recognize the FOR UPDATE at its end, and
// send the statement to the primary. The subqueries lock nothing.
func (d MySQL) Load(key string, w casstore.Want) Statement {
	if !w.Current {
		return d.rows(mysqlServer("f.id")+",@@max_allowed_packet", w.Value).add("LEFT JOIN lockkit_locks k ON k.name=").name(key).end()
	}
	t := d.text().add(mysqlNoWait, "SELECT ", mysqlAlone, ",@@global.read_only=0,1=1,", ofVersionRow("version", "0"), ",", mysqlServer(ofVersionRow("id", "''")))
	t.add(",@@max_allowed_packet,", mysqlNow, ",", ofVersionRow("token", "0"), rowColumns, valueColumn(w.Value))
	return t.add(" FROM (SELECT 1 AS one) f LEFT JOIN lockkit_locks k ON k.name=").name(key).add(" FOR UPDATE").end()
}

// ofVersionRow returns an expression for a column of the row of lockkit_version.
// Without a row, the value of the expression is the parameter missing.
func ofVersionRow(column, missing string) string {
	return "COALESCE((SELECT " + column + " FROM lockkit_version)," + missing + ")"
}

// List implements Dialect.
func (d MySQL) List(after string, most int) Statement {
	t := d.rows(noID, false).add("JOIN lockkit_locks k WHERE k.name>").name(after)
	return t.add(" ORDER BY k.name LIMIT ", strconv.Itoa(most)).end()
}

// Dead implements Dialect.
func (d MySQL) Dead(most int) Statement {
	t := d.rows(noID, false).add("JOIN lockkit_locks k WHERE k.due<=", mysqlNow, " DIV ").num(bucket)
	return t.add(" ORDER BY k.due LIMIT ", strconv.Itoa(most)).end()
}

// Save implements Dialect.
func (d MySQL) Save(key string, old, e casstore.Entry) Statement {
	t := d.text().add(mysqlWait)
	if old.Version == 0 {
		t.insert("lockkit_locks", "lockkit_version", key, &old, &e)
	} else {
		t.update("lockkit_locks", key, &old, &e)
	}
	return t.soon(mysqlNow, &old, &e).add(" AND ", mysqlAlone).end()
}

// Raise implements Dialect.
func (d MySQL) Raise(token uint64) Statement {
	t := d.text().add(mysqlWait, "UPDATE lockkit_version SET token=GREATEST(token,").num(int64(token))
	return t.add(") WHERE ", mysqlAlone).end()
}

// Delete implements Dialect. It finds rows only by their names, so it locks no gap in the
// index lockkit_due.
func (d MySQL) Delete(items []casstore.Item) Statement {
	t := d.text().add(mysqlNoWait, "DELETE k FROM (SELECT name FROM lockkit_locks", mysqlRows, " WHERE (")
	for i, item := range items {
		if i > 0 {
			t.add(" OR ")
		}
		t.add("name=").name(item.Key).add(" AND version=").num(item.Version)
	}
	t.add(") AND ", mysqlNow, ">=").num(readAt(items)).add(" AND ", mysqlAlone, " LIMIT ", strconv.Itoa(len(items)), " FOR UPDATE SKIP LOCKED) l STRAIGHT_JOIN lockkit_locks k", mysqlRows)
	return t.add(" ON k.name=l.name").end()
}

// mysqlServer adds the server to the ID of the tables, because a replica has the same
// rows. Two servers of one replication cannot have the same server_id.
func mysqlServer(id string) string { return "CONCAT(" + id + ",' ',@@global.server_id)" }

// ID implements Dialect. Like a Load of the newest row, it is a statement for the
// primary.
func (MySQL) ID() Statement {
	return Statement{Text: mysqlNoWait + "SELECT " + mysqlServer(ofVersionRow("id", "''")) +
		" FROM (SELECT 1 AS one) f LEFT JOIN lockkit_locks k ON k.name='' FOR UPDATE"}
}

// Inside implements Dialect.
func (MySQL) Inside() Statement {
	return Statement{Text: "SELECT 1=1," + mysqlTimely + ",1=1," + mysqlServer("id") + ",version,@@max_allowed_packet FROM lockkit_version"}
}

// LoadLocked implements Dialect. A locking read returns the newest row at every
// isolation level. It does not read the table of the version, because locking reads of
// its only row would block each other.
func (d MySQL) LoadLocked(key string) Statement {
	t := d.text().add(mysqlNewest, thisVersion, mysqlNow, ",0", rowColumns, ",NULL FROM lockkit_locks k WHERE k.name=").name(key)
	return t.add(" FOR UPDATE").end()
}

// SaveLocked implements Dialect.
func (d MySQL) SaveLocked(key string, old, e casstore.Entry) Statement {
	return d.text().add(mysqlNewest).update("lockkit_locks", key, &old, &e).end()
}

// Proof implements Dialect. With autocommit off, a transaction that a deadlock has
// rolled back would look open. The next statement begins a new transaction.
func (MySQL) Proof() Proof { return Proof{Succeed: savepoint, True: "SELECT @@autocommit=1"} }

// Idle implements Dialect. On MySQL no statement can read whether a transaction was open
// before it. But MySQL refuses SET TRANSACTION while a transaction is open.
func (MySQL) Idle() Proof {
	return Proof{Unless: "SELECT /*M! 1=1 OR */ 1=0", Succeed: []string{"SET TRANSACTION READ WRITE"}}
}

// Note implements Dialect.
func (d MySQL) Note(resource string, token uint64) Statement {
	t := d.text().add(mysqlNewest, "INSERT INTO lockkit_seen (resource,token) VALUES (").name(resource).add(",").num(int64(token))
	return t.add(") ON DUPLICATE KEY UPDATE token=GREATEST(token,").num(int64(token)).add(")").end()
}

// Seen implements Dialect.
func (d MySQL) Seen(resource string) Statement {
	return d.text().add(mysqlNewest, "SELECT token FROM lockkit_seen WHERE resource=").name(resource).add(" FOR UPDATE").end()
}
