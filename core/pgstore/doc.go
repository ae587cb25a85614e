// Package pgstore stores the locks of package core in PostgreSQL 14 or later, next to
// the data that they guard.
//
//	pool, err := pgxpool.New(ctx, url)
//	if err != nil {
//		return err
//	}
//	if err := pgstore.Migrate(ctx, pool); err != nil { // once, or whenever a program starts
//		return err
//	}
//	store, err := pgstore.New(pool)
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the pool
//	if err := store.Check(ctx); err != nil { // names the remedy, such as a GRANT
//		return err
//	}
//	locks, err := core.New(store)
//
// # What is stored
//
// All tables are in the schema lockkit. Package sqlstore uses the same tables, so locks
// of both packages exclude each other. A key is a row of lockkit.locks. The usual lock
// is released by one statement, and is also taken by one if the key is free at the
// first attempt. One statement extends up to 512 usual locks with the same TTL. Every
// other operation is a read and a compare-and-set. If another process has changed the
// row in between, package casstore repeats both. No row stays locked between two round
// trips. The exception is a Commit of package once, which locks its row until the
// COMMIT. The database needs no stored functions.
//
// Except for a Commit, which locks the row of its key, an open transaction of yours
// does not delay the locks. The locks do not delay your transactions. A row without
// live entries is deleted some minutes later. Acquires of any key delete such rows, up
// to 1,000 in one statement. No job is needed.
//
// # Tokens
//
// A token is the time of the server's clock in microseconds, or the token of the key's
// last grant plus 64 if that is higher. The 63 numbers after a token belong to the same
// grant. Before a row is deleted, its token is stored in lockkit.version, and a new row
// continues from there. So tokens grow even if rows are deleted, the clock is set back,
// or an older backup is restored. Setting the clock back does not prolong holds. A hold
// then lasts for the time that was left when its row was last written, and at most two
// seconds more.
//
// CheckToken compares tokens in the transaction that changes the data. It refuses a
// token after a newer token was used for the same resource.
//
// # Answers
//
// once.Commit with In(tx) saves an answer in a transaction of the caller, so that the
// answer is committed together with its effect. The transaction's user needs SELECT on
// lockkit.version, and SELECT and UPDATE on lockkit.locks.
//
// In another database and in a logical replica, Commit fails with store.ErrUnsupported.
// Commit recognizes another database by the random ID in lockkit.version. A logical
// replica has the ID of its origin, so Commit recognizes the replica by its
// subscription. Commit does not recognize a copy of the database, because the copy has
// the same ID. Such copies are a restored backup, a promoted standby, and a logical
// replica whose subscription was dropped. So the transaction's pool must lead to the
// server of the locks.
//
// # Poolers
//
// Everything except wake-ups works through a pooler in transaction mode, such as
// pgbouncer. There a Store prepares no statements and relies on no session. Behind a
// pooler a Store first listens to a test channel of its own. If a test notification
// does not arrive, Watch fails with store.ErrUnsupported, and waiters poll about once a
// second. After a minute the Store tries to listen again. WithListener configures a
// connection that does not lead through the pooler.
//
// On a connection to the server itself, the statements that take and release the usual
// lock are prepared. They are not prepared if the pool's DefaultQueryExecMode differs
// from pgx's default, or while the Store's statements set their isolation level. The
// Store sends one query for each connection to recognize a pooler.
//
// All wake-ups of a database are notifications on the channel lockkit. They do not
// reveal which claim waits for which key.
//
// # Pools
//
// A call occupies a connection only during its round trips. Give the pool a
// connect_timeout of a few seconds; the default of pgx is two minutes. If the server is
// cut off silently, each connection attempt counts in the pool until the
// connect_timeout.
//
// A load balancer or a firewall may forget idle connections without a message to either
// side. pgxpool pings a connection that was idle for a second. If there is no answer
// within a second, a call takes a new connection. The Store then pings the other idle
// connections too, and closes every connection that does not answer. So only the calls
// of that second are late. A connection that falls silent while it is in use fails one
// call, after two seconds and with an unknown outcome.
//
// If pgx closes a connection because of a time-out, newer versions of pgx still count
// the connection in the pool for up to 15 s. So the pool should be larger than the
// number of simultaneous calls.
//
// Two settings of the pool make silent connections rarer. Set MaxConnIdleTime (by
// default 30 minutes) to less than the idle timeout of the load balancer or firewall.
// Set HealthCheckPeriod (by default a minute) to less than half of that timeout. If
// your pgxpool has a PingTimeout, set it to a second.
//
// # After a failover
//
// After a failover the name of the primary may lead to a standby for some time. The old
// primary may also become a standby, and connections to it stay open. If a server
// reports that it is read-only, its connection is closed, so that the next call dials.
// The idle connections of the pool and the connection that listens are closed too.
// Connections in use stay open, because the pool may have other users. Until a probe
// finds a server that accepts writes, acquires fail as while the server is down. A
// connection is also closed if the server shuts down, ends the session, or leaves the
// outcome of a statement unknown.
//
// A probe calls the pool's AfterConnect, but not BeforeAcquire or PrepareConn. If the
// database is read-only by default, make the sessions writable in AfterConnect.
//
// The parameter target_session_attrs=read-write keeps the pool from connecting to a
// standby. The parameter is needed if the URL has several hosts. Behind a pooler, the
// pooler's own connections matter. So make the pooler reconnect, for example with
// RECONNECT of pgbouncer. Check reports a standby.
//
// # While the server is down
//
// A server counts as down if it refuses connections. It also counts as down if a call
// and then a probe have each had no answer for two seconds. While the server is down,
// one probe at a time connects to it, outside the pool. Until the server answers,
// acquires fail within about 100 ms, with store.ErrUnavailable and the error of the
// connection. Extend and Release are always sent.
//
// # Rights
//
// The user that calls Migrate owns the schema. A user of locks needs only
//
//	GRANT USAGE ON SCHEMA lockkit TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON lockkit.locks TO app;
//	GRANT SELECT, UPDATE ON lockkit.version TO app;
//	GRANT SELECT, INSERT, UPDATE ON lockkit.seen TO app; -- for CheckToken
//
// If row-level security is on for a table and has no policy for the user, row-level
// security hides all rows and refuses new rows. The errors of Check, Migrate and
// acquires then name row-level security. Disable row-level security for the tables of
// the schema (ALTER TABLE … DISABLE ROW LEVEL SECURITY), or give the user BYPASSRLS.
//
// An operator (store.Inspector) needs USAGE on the schema, and SELECT on lockkit.locks
// and lockkit.version. To revoke holds, an operator also needs UPDATE on lockkit.locks.
// To put cards, an operator needs INSERT and UPDATE on lockkit.locks.
//
// A user that may write lockkit.locks can take and release every lock. So programs that
// do not trust each other need separate databases.
//
// # Requirements of the server
//
// The server must be PostgreSQL 14 or later. The tests of this package have passed on
// each version from 14 to 18. Migrate and Check refuse an older version, because the
// tests do not run on it.
//
// A lock is as durable as a commit. A grant is on disk before the Store returns it,
// even if synchronous_commit is off. After a crash with fsync off, a lock can be
// granted twice. The same can happen after a failover to a replica that has not
// received the grant. The second grant then has a higher token. The Store works at
// every default_transaction_isolation. If the default is above READ COMMITTED, the
// Store's statements set READ COMMITTED after the first serialization failure.
package pgstore
