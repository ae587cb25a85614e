// Package pgstore stores the locks of package core in PostgreSQL 14 or later, next to the data that
// they guard.
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
// All tables are in the schema lockkit. Package sqlstore uses the same tables: locks of both exclude
// each other. A key is a row of lockkit.locks. The usual lock is one statement each way. Every other
// one is a read and a compare-and-set, which package casstore repeats until no other process was
// faster. No row is locked between two round trips, except by a Commit of package once until its
// COMMIT. The database needs no function.
//
// An open transaction of yours does not delay the locks, and they do not delay yours. A row without
// live entries is deleted some minutes later, by the acquires of any key, with up to 999 others in
// one statement. No job is needed.
//
// # Tokens
//
// A token is the microseconds of the server's clock, or 64 more than the token of the key's last
// grant if that is higher: the 63 numbers after a token belong to its grant, too. Before a row is
// deleted its token is stored in lockkit.version, and a new row continues from there. So tokens
// grow when rows are deleted, when the clock is set back, and when an older backup is restored. Nor
// does a clock that is set back make holds last: they have the time that was left when their row
// was last written.
//
// CheckToken is the other half: in the transaction that changes the data it refuses a holder that
// has been replaced.
//
// # Answers
//
// once.Commit with In(tx) saves an answer in a transaction of the caller, so that the answer is
// committed together with its effect. The user of the transaction needs SELECT on lockkit.version,
// and SELECT and UPDATE on lockkit.locks.
//
// Commit fails with store.ErrUnsupported in another database, which it recognizes by the random ID
// in lockkit.version, and in a logical replica, which has the ID of its origin. A copy of the
// database has the same ID too: a restored backup, or a logical replica whose subscription was
// dropped. So the transaction's pool must lead to the server of the locks.
//
// # Poolers
//
// Everything except wake-ups works through a pooler in transaction mode, such as pgbouncer: nothing
// is prepared there, and no session is relied on. Behind a pooler a Store first listens to a channel
// of its own. If notifications do not arrive there, it reports that and listens no more, and waiters
// poll about once a second. WithListener names a way around the pooler.
//
// A connection to the server itself has the statements of the usual lock prepared, unless the
// pool's DefaultQueryExecMode differs from pgx's default. The Store asks each connection once.
//
// All wake-ups of a database are notifications on the channel lockkit. They do not show which claim
// waits for which key.
//
// # Pools
//
// A call takes a connection for a round trip. Give the pool a connect_timeout of a few seconds. The
// default of pgx is two minutes, and for that time a server that is cut off silently keeps the place
// of each connection that was begun.
//
// A load balancer or a firewall may forget idle connections without a message to either side.
// pgxpool pings a connection that was idle for a second. If there is no answer within a second, a
// call takes a new connection. The other idle ones are pinged too, and those that do not answer are
// closed. So one call is late, by a second. A connection that falls silent while it is in use fails
// one call, after two seconds and with an unknown outcome. Newer versions of pgx hold the place of a
// connection that they gave up for up to 15 s, so the pool should be larger than the number of calls
// at a time. Two settings of the pool make both rarer. Set MaxConnIdleTime to less than the time
// after which connections are forgotten (the default is 30 minutes), and HealthCheckPeriod to less
// than half of that (the default is a minute). Where pgxpool has a PingTimeout, a second is enough.
//
// # After a failover
//
// The name of the primary may lead to a standby for some time, or the old primary may become one,
// and connections to it stay open. A connection whose server reports that it is read-only is closed,
// so that the next call dials. The idle connections of the pool and the one that listens are closed
// too. Connections in use stay open: the pool may have other users. Until a probe finds a server
// that takes writes, other acquires fail at once, as while the server is down. A connection is also
// closed if the server shuts down, ends the session, or leaves the outcome of a statement unknown.
//
// The parameter target_session_attrs=read-write keeps the pool from connecting to a standby. It is
// needed if the URL has several hosts. Behind a pooler the connections of the pooler count: make it
// reconnect, as with RECONNECT of pgbouncer. Check reports a standby.
//
// # While the server is down
//
// The server is known to be down if it refuses connections, or has answered neither a call nor a
// probe within two seconds each. Then one probe at a time asks it, on a connection of its own beside
// the pool's. Until the server answers, other acquires fail at once with store.ErrUnavailable and
// the error of the connection. Extend and Release are always sent.
//
// # Rights
//
// The user that calls Migrate owns the schema. A user that locks needs no more than
//
//	GRANT USAGE ON SCHEMA lockkit TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON lockkit.locks TO app;
//	GRANT SELECT, UPDATE ON lockkit.version TO app;
//	GRANT SELECT, INSERT, UPDATE ON lockkit.seen TO app; -- for CheckToken
//
// Row-level security that is on for a table and has no policy for the user hides all rows and
// refuses new ones. Check, Migrate and acquires name it. It must be off for the tables of the schema
// (ALTER TABLE … DISABLE ROW LEVEL SECURITY), or the user has BYPASSRLS.
//
// An operator (store.Inspector) needs USAGE, and SELECT on lockkit.locks and lockkit.version. To
// revoke, an operator needs UPDATE on lockkit.locks too, and to put cards, INSERT.
//
// A user that may write lockkit.locks can take and release every lock. So programs that do not trust
// each other need databases of their own.
//
// # Requirements of the server
//
// The server must be PostgreSQL 14 or later. The tests of this package have passed on each version
// from 14 to 18. Migrate and Check refuse an older one, which does not know all statements of the
// schema.
//
// A lock is as durable as a commit. A grant is on disk before the Store returns it, even where
// synchronous_commit is off. With fsync off, or after a failover to a replica that has not received
// it, a lock can be granted twice, with a higher token. The Store works at every
// default_transaction_isolation. Where that is above READ COMMITTED, statements set READ COMMITTED
// from the first serialization failure on.
package pgstore
