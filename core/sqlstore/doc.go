// Package sqlstore stores locks in a SQL database behind database/sql: MariaDB 10.6 and
// later, MySQL 8.0 and later, PostgreSQL 14 and later, and SQLite 3.35 and later. It
// imports no driver. Migrate and Check refuse an older server. Its tests pass on the
// servers of core/SERVERS.md.
//
// # Rows
//
// A key is a row. The usual lock is released by one statement. It is also taken by one
// if the key is free at the first attempt. Every other operation is a read and a
// compare-and-set. If another process has changed the row in between, package casstore
// repeats both. No row stays locked between two round trips. The exception is a Commit
// of package once, which locks its row until the COMMIT. So a process that dies leaves
// no other row locked.
//
// The database needs no stored functions. The isolation level, the time zone, the SQL
// mode and the parameters of the driver do not matter, with three exceptions. Each
// statement must commit by itself, because an open transaction would roll locks back.
// On MariaDB and MySQL the level READ UNCOMMITTED is refused, and so is a session that
// has set its variable timestamp. A timestamp up to two seconds in the past is not
// noticed, and a hold that it grants expires up to two seconds early. With some drivers
// the check for an open transaction takes two more round trips per call. These are
// drivers other than pgx on PostgreSQL, and drivers other than go-sql-driver/mysql on
// MySQL.
//
// A Store uses the time of the database. If the database's clock is set back, a hold
// lasts at most for the time that was left at the last write of its row, and two
// seconds more.
//
// # Waiting
//
// A release does not wake waiters of this package in other processes. These waiters try
// again after a pause. Within a process a released lease usually passes its hold on to
// the next caller at once. Package pgstore is for PostgreSQL through pgx, with the same
// tables, so locks of both packages exclude each other. Releases by either package wake
// pgstore's waiters.
//
// # Requirements of the server
//
// Every statement must reach the one server that writes. Two setups can admit two
// holders: a replica that takes over without the last commits, and a cluster in which
// several servers write. If a standby or a read-only server answers a read, the call
// fails. A write can depend on the time of an earlier read. Such a write changes
// nothing if that time is ahead of the server's clock, or more than a second behind it.
// For each 32 MB of an answer this limit is a second longer. So a proxy that sends
// plain reads to a replica can cause refusals, but no second holder. Commits must be
// durable: innodb_flush_log_at_trx_commit=1 on MariaDB and MySQL, fsync on PostgreSQL,
// synchronous=FULL on SQLite. MariaDB and MySQL with a binary log need
// binlog_format=ROW or MIXED, and sync_binlog=1, which is not the default of MariaDB.
// Check finds most of these faults.
//
// On MySQL set innodb_lock_wait_timeout=1 in the DSN. On MariaDB and PostgreSQL the
// statements themselves limit the wait for a locked row to at most a second. On SQLite
// set journal_mode=WAL, synchronous=FULL and busy_timeout=1000 for each connection.
// Keep write transactions in the same SQLite file shorter than a third of a TTL,
// because each of them blocks all extensions. The file must be on a disk of the
// machine. On Linux Check refuses a file on NFS, SMB, 9P, Ceph or AFS. Each call
// refuses a database in memory.
//
// # Pool of connections
//
// The locks need a *sql.DB of their own, with at least 4 connections. While the
// caller's transactions have all connections of a shared pool, no lock can be extended.
// A call that gets no connection within 1.5 seconds changes nothing and fails with
// store.ErrUnavailable. After a restart of the server a new connection may take the
// whole 1.5 seconds. If idle connections are silent, a new connection may take only 0.9
// seconds. The same limit holds in a full pool if its driver pings idle connections, as
// pgx does.
//
// By default database/sql keeps only two idle connections, and closes each further one
// after its call. Then most calls of a busy service dial first. So set
// db.SetMaxIdleConns to the same number as db.SetMaxOpenConns.
//
// A lease of many keys releases them side by side. If the pool has a limit, the
// releases share its connections. Without a limit, at most 32 releases are in flight at
// once, and the others wait. db.SetMaxOpenConns sets another limit.
//
// A load balancer can forget an idle connection in silence. A call on such a connection
// fails after two seconds, with an unknown outcome. Then the Store pings all idle
// connections, and closes each connection that does not answer. So only one of several
// sequential calls fails, and not one call for each connection. Concurrent calls can
// fail together, and so can calls with a shorter time limit. With pgx usually no call
// fails, because pgx pings a connection that was idle for a second. To lose no call,
// set db.SetConnMaxIdleTime below the idle timeout of the load balancer. A Store
// changes no setting of the pool.
//
// # Behind a pooler
//
// A pooler in transaction mode, such as pgbouncer, may assign another session of the
// server to each call. There the DSN of pgx needs a mode in which pgx prepares no
// statements, exec or simple_protocol:
//
//	postgres://app@pooler/shop?default_query_exec_mode=exec
//
// With this mode everything works. The pool of the caller's transactions needs the
// setting too. Without the setting, pgx prepares statements in one session and can find
// them missing in the next session. Such a call changes nothing, fails with
// store.ErrUnavailable and names the setting. Whether a call fails depends on the
// pooler's choice, so Check can succeed without the setting.
//
// # After a failover
//
// If a server reports that it is read-only, the call fails with store.ErrUnavailable.
// The Store does not send the call again. It closes the call's connection and the idle
// connections of the pool. Connections that other calls of the Store use close after
// these calls. So the next call connects to the server to which the DSN leads at that
// time. The Store also closes a connection after an error that ends its
// session or leaves its state unknown. The pools of the caller's own transactions need
// a setting of the driver, such as rejectReadOnly=true of go-sql-driver/mysql or
// target_session_attrs=read-write of pgx.
//
// # Answers
//
// An answer of package once is in the row of its key. once.Commit with In(tx) saves an
// answer in a transaction of the caller, so that the answer is committed together with
// its effect. On MariaDB and MySQL a statement has at most max_allowed_packet bytes, by
// default 16 MiB on MariaDB and 64 MiB on MySQL. In a statement, an answer of up to 64
// KiB takes twice its length. If an answer does not fit, the Store does not send it,
// and saves its run as done without an answer. For such an answer once.Commit fails
// with store.ErrInvalid.
//
// # Rights
//
// Migrate needs the right to create tables. On PostgreSQL this is CREATE ON DATABASE.
// On MariaDB and MySQL Migrate needs CREATE, SELECT, INSERT and UPDATE on the database.
// A Store needs SELECT, INSERT, UPDATE and DELETE on the table of the locks, and SELECT
// and UPDATE on the table of the version. The names of these tables are lockkit_locks
// and lockkit_version. On PostgreSQL the names are lockkit.locks and lockkit.version,
// and a Store also needs USAGE of the schema lockkit. Row-level security on these
// tables must let the Store's user see all rows. If it hides rows, the errors of Check
// and of each call name row-level security. The user of a transaction with once.Commit
// needs SELECT on the version table, and SELECT and UPDATE on the table of the locks.
// The user of a transaction with CheckToken needs SELECT, INSERT and UPDATE on the
// table whose name ends in seen. Check does not test the rights of these users, but the
// errors of Commit and CheckToken name the missing GRANT.
package sqlstore
