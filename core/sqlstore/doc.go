// Package sqlstore keeps locks in a SQL database behind database/sql: MariaDB 10.6 and
// later, MySQL 8.0 and later, PostgreSQL 14 and later, and SQLite 3.35 and later. It
// imports no driver. Its tests pass on the servers of core/SERVERS.md.
//
// # Rows
//
// A key is a row. The usual lock is one statement each way. Everything else is a read
// and a compare-and-set, which package casstore repeats until no other process was
// faster. No row is locked between two round trips. The exception is a Commit of package
// once, which locks its row until its COMMIT. So a process that dies leaves nothing else
// locked.
//
// The database needs no function. The isolation level, the time zone, the SQL mode and
// the parameters of the driver do not matter, with two exceptions: each statement must
// commit by itself, and READ-UNCOMMITTED is refused on MariaDB and MySQL. An open
// transaction would roll locks back. The check for one takes two round trips on
// PostgreSQL with a driver other than pgx, and one on MySQL with a driver other than
// go-sql-driver/mysql.
//
// The time is the database's. If its clock is set back, deadlines move back too.
//
// # Waiting
//
// No waiter of another process is woken: it asks again after a pause. Within a process a
// lock is passed on at once. Package pgstore is for PostgreSQL by pgx, with the same
// tables: locks of both exclude each other. Its waiters are woken by the releases of
// either.
//
// # Requirements of the server
//
// Every statement must reach the one server that writes. Three setups can let two
// holders in: a standby, a replica that takes over without the last commits, and a
// cluster in which several servers write. A read that a standby or a read-only server
// has answered is an error, and nothing is written by the time of another server.
// Commits have to be durable: innodb_flush_log_at_trx_commit=1 on MariaDB and MySQL,
// fsync on PostgreSQL, synchronous=FULL on SQLite. MariaDB and MySQL that write a binary
// log need sync_binlog=1, which is not the default of MariaDB, and binlog_format=ROW or
// MIXED. Check finds most of this.
//
// On MySQL set innodb_lock_wait_timeout=1 in the DSN. On other databases the statements
// themselves limit the wait for a locked row to at most a second. On SQLite set
// journal_mode=WAL, synchronous=FULL and busy_timeout=1000 for each connection, and keep
// write transactions shorter than a third of a TTL: each one stops every extension in
// the file. The file belongs on a disk of the machine: on Linux Check refuses one on NFS,
// SMB, 9P, Ceph or AFS. A database in memory is refused by each call.
//
// # Pool of connections
//
// The locks need a *sql.DB of their own, of at least 4 connections. If the caller's
// transactions have all of a shared one, no lock can be extended. A call that gets no
// connection within 1.5 seconds changes nothing and fails with store.ErrUnavailable.
//
// # Answers
//
// An answer of package once is in the row of its key. once.Commit with In(tx) saves one
// in a transaction of the caller, so that it is committed together with its effect. On
// MariaDB and MySQL a statement has at most max_allowed_packet bytes, by default 16 MiB
// on MariaDB and 64 MiB on MySQL, and an answer of up to 64 KiB takes twice its length. A
// longer answer is not sent, and its run is saved as done without an answer. In a
// transaction once.Commit fails with store.ErrInvalid.
//
// # Rights
//
// Migrate needs the right to create tables. A Store needs SELECT, INSERT, UPDATE and
// DELETE on the tables whose names begin with lockkit_, and on PostgreSQL USAGE of the
// schema lockkit too. The user of a transaction with once.Commit needs SELECT on the
// version table, and SELECT and UPDATE on the table of the locks.
package sqlstore
