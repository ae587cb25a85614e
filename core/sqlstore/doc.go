// Package sqlstore keeps locks in a SQL database behind database/sql: MariaDB 10.6 and
// later, MySQL 8.0 and later, PostgreSQL 14 and later, and SQLite 3.35 and later. It imports
// no driver. Its tests pass on the servers of core/SERVERS.md.
//
// # Rows
//
// A key is a row. The usual lock is one statement each way. Everything else is a read and a
// compare-and-set, which package casstore repeats until no other process was faster. No row
// is locked between two round trips, but by a Commit of package once until its COMMIT, so a
// process that dies leaves nothing else locked. The database needs no function. Nothing depends
// on the isolation level, the time zone, the SQL mode or the parameters of the driver, except
// that each statement must commit by itself, and that READ-UNCOMMITTED is refused on MariaDB and
// MySQL. Whether a transaction is open, which would roll locks back, is asked for in two round
// trips on PostgreSQL with a driver other than pgx, and in one on MySQL with a driver other than
// go-sql-driver/mysql.
//
// The time is the database's. If its clock is set back, deadlines move back too.
//
// # Waiting
//
// No waiter of another process is woken: it asks again after a pause. Within a process a lock
// is passed on at once. Package pgstore is for PostgreSQL by pgx, with the same tables: locks of
// both exclude each other. Its waiters are woken by what either of the two releases.
//
// # Which server
//
// Every statement must reach the one server that writes. A standby, a replica that takes over
// without the last commits, and a cluster in which several servers write can let two holders
// in. A read that a standby or a read-only server has answered is an error, and nothing is
// written by the time of another server. Commits have to be durable:
// innodb_flush_log_at_trx_commit=1 on MariaDB and MySQL, fsync on PostgreSQL, synchronous=FULL
// on SQLite. Check finds most of this.
//
// On MySQL set innodb_lock_wait_timeout=1 in the DSN. Elsewhere a statement that meets a
// locked row says by itself that it waits for a second at most. On SQLite set journal_mode=WAL,
// synchronous=FULL and busy_timeout=1000 for each connection, and keep write transactions
// shorter than a third of a TTL: each one stops every extension in the file. The file belongs on
// a disk of the machine, not on a network file system.
//
// # The pool
//
// The locks need a *sql.DB of their own, of at least 4 connections. If the caller's
// transactions have all of a shared one, no lock can be extended. A call that gets no connection
// within 1.5 seconds changes nothing and fails with store.ErrUnavailable.
//
// # Answers
//
// An answer of package once is in the row of its key. once.Commit with In(tx) saves one in a
// transaction of the caller, so that it is committed together with its effect. On MariaDB and
// MySQL a statement has at most max_allowed_packet bytes, by default 16 MiB on MariaDB and 64 MiB
// on MySQL, and an answer of up to 64 KiB takes twice its length.
//
// # Rights
//
// Migrate needs the right to create tables. A Store needs SELECT, INSERT, UPDATE and DELETE on
// those whose names begin with lockkit_, and on PostgreSQL USAGE of the schema lockkit too. The
// user of a transaction with once.Commit needs SELECT on the version table, and SELECT and
// UPDATE on that of the locks.
package sqlstore
