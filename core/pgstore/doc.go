// Package pgstore keeps the locks of package core in PostgreSQL 12 or later, next
// to the data that they guard.
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
//	if err := store.Check(ctx); err != nil { // says what to do about it, such as a GRANT
//		return err
//	}
//	locks, err := core.New(store)
//
// # What is stored
//
// Everything is in the schema lockkit. All that is known of a lock is one row of
// lockkit.keys: holds, tombstones and the list of who waits with their deadlines
// on the server's clock, the fencing token of the last grant, and the record of a run. Every
// operation is one function in the database, which locks that row, decides, and
// commits: one round trip. The view lockkit.locks shows what is held at this
// moment.
//
// Nothing is held up by an open transaction of yours, and no lock of yours by one
// of these. What has ended is dropped when its key is next used. A row of which
// nothing is alive is deleted within ten minutes, by whoever happens to lock another
// key then; no job is needed.
//
// # Tokens
//
// A token is the microseconds of the server's clock, or 64 more than that of the last
// grant of the key if that is higher: the 63 after a token belong to its grant, too. What
// is deleted leaves its highest token in lockkit.floor, and what is made anew goes on
// from there. So tokens grow when rows are
// deleted, when the clock is set back, and when an older backup is restored.
// A clock that is set back does not make holds last either: what was left of them
// when their row was last written is what is left then.
//
// CheckToken is the other half: in the transaction that changes the data it
// refuses a holder who has been replaced.
//
// # Poolers
//
// Everything works through a pooler in transaction mode, such as pgbouncer:
// nothing is prepared, no session is relied on. The exception are wake-ups. A
// Store that finds that notifications do not arrive says so, and those who wait
// ask about once a second; WithListener tells it a way around the pooler.
//
// # Pools
//
// A call takes a connection for a round trip. Give the pool a connect_timeout of a
// few seconds: pgx's own is two minutes, for which a server that is cut off
// without a word keeps the place of each connection that was begun.
//
// # Rights
//
// Who calls Migrate owns the schema. A user who locks needs no more than
//
//	GRANT USAGE ON SCHEMA lockkit TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON lockkit.keys TO app;
//	GRANT SELECT, UPDATE ON lockkit.floor TO app;
//	GRANT SELECT ON lockkit.version TO app; -- for Check, and for Migrate with nothing to do
//	GRANT SELECT, INSERT, UPDATE ON lockkit.seen TO app; -- for CheckToken
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA lockkit TO app; -- if default privileges deny it
//
// The functions have the rights of who calls them. Who may write lockkit.keys can
// take and free every lock, so programs that do not trust each other have
// databases of their own.
//
// # What the server has to be
//
// PostgreSQL 12 is the oldest version that Check takes. Nothing here needs what 12
// brought: the tests of this package pass on 10 and 11 too, but for Check, and on each
// version from 12 to 18. Older ones get no fixes any more.
//
// A lock is as durable as a commit. The Store sees to it that a grant is on disk
// before it is told, also where synchronous_commit is off; with fsync off, or
// after a failover to a replica that has not seen it, a lock can be granted
// twice, with a higher token. Whatever default_transaction_isolation is, steps
// run in READ COMMITTED.
package pgstore
