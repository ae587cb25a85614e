// Package redisstore stores the locks of package core in Redis or Valkey 6.2 or later,
// on a single server, behind Sentinel, or in a Cluster.
//
//	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}))
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the client
//	if err := store.Check(ctx); err != nil {
//		return err // lists the faults of this server
//	}
//	locks, err := core.New(store)
//
// # Reading the code
//
// Begin with the way of a usual lock. Its acquire runs no script: store.go, acquire.go
// (acquireBySet) and send.go. Then read how internal/pipeline sends the call: doc.go,
// pipeline.go, call.go, script.go, cluster.go (which server, and a call that has to be
// sent to another one: ErrElsewhere, elsewhere, replied), server.go with
// core/internal/outage (whether the server is down), refresh.go (silent connections),
// sender.go, payload.go, flight.go, limit.go, detached.go and classes.go. The release is
// release.go, lua/clock.lua and lua/release_shortcuts.lua. The extension is extend.go and
// lua/extend_shortcuts.lua.
//
// Continue with the scripts of other claims, in the order of their files in scripts.go:
// acquire_shortcuts.lua, crowd.lua (its head, until you need a crowd), state.lua,
// messages.lua, waiters.lua, acquire.lua, release_relay.lua and release.lua. Read the
// other parts when you need them: waiters (push.go, watch.go), replicas.go, plain keys
// (plain.go), Redisson (redisson.go), lists and cards.
//
// # Stored keys
//
// The whole state of a lock is in one key. So the state is in one slot of a Cluster,
// and every decision is one command or one script on one key. By default, the lock with
// the key "order:42" has the name "lk2:{order:42}" in Redis. If a usual exclusive claim
// finds the key free, a SET NX PX writes the value
//
//	<ms> <owner> <lease>
//
// The three words are the lock's length in milliseconds, its owner and its lease. The
// lock expires with its key. A TIME after that SET returns the fencing token, which only
// the holder knows. Any other string is "f" followed by fields. Each field is a tab, its
// name, a space and its text:
//
//	r          the record of a run: deadline, attempt, state, and the lease that
//	           began or saved the record. With a deadline of 0 the record expires
//	           with the key
//	h:<lease>  a hold: the time of its last write, its length from that time on, its
//	           owner and its weight
//	k:<lease>  a released hold that keeps the key taken for a while: the same parts,
//	           with an empty owner
//	d:<lease>  a tombstone, for a lease that was released before its acquire arrived:
//	           the time of its last write, and its length
//	t          the fencing token of the last exclusive grant. The next 63 tokens also
//	           belong to that grant
//	w          the waiters, in order of arrival, all in one field
//	v          the value of the record, unchanged, at most 64 MiB
//
// A key with more than eight leases and no record is a hash with the same fields. It
// becomes a string again when four leases are left. The hash also has a list of leases
// for each owner (o:<owner>), and the field n, which summarizes all leases. So the
// server's work for a reader or a permit does not depend on the number of leases. A
// script can leave an expired lease in a hash for up to a second, if no answer depends on
// the lease.
//
// Times are on the server's clock. The time of an entry's last write is in
// microseconds. The length of an entry, and the deadlines of records and waiters, are
// in milliseconds. If the time of the last write is in the future, the clock was set
// back. The length of such an entry starts again, so a dead holder's key is still free
// after its TTL. Records last longer in this case. The key expires with its last entry,
// or up to a second later if it is a hash. It does not expire before the clock has
// passed the tokens of the last grant. So a release can leave the key with only these
// tokens, usually for 2 ms. Expired entries are deleted when the key is next used.
//
// A record takes memory for as long as it is retained: at most 1.25 times the length of
// its value, plus 400 bytes. Each call on the key reads the whole record, and usually
// writes it. So avoid locks on the key of a long record.
//
// Each Store has its own pub/sub channel for wake-ups, "lk2:wake:<id>". The entry of a
// waiter in the field w contains the id. The script that makes room publishes to this
// channel. The message wakes the waiter, which then sends a request. If the waiter's
// process listens, the script can also admit the waiter for a short time. The message
// then contains the grant. A Store subscribes for its first watch, and unsubscribes a
// minute after the last watch.
//
// With WithPlainKeys a lock is one string that contains the owner. The name of the
// string is the prefix and the key.
//
// With WithRedisson a lock is a hash, which lua/redisson.lua describes. The wake-ups of
// Redisson's locks are messages on a separate channel for each lock.
//
// The cards of all processes (store.Cards) are in one hash, "lk2:{}cards".
//
// # Requirements of the server
//
// The server must not evict keys: maxmemory-policy noeviction. A server out of memory
// refuses new locks, but still extends and releases held locks, and saves and returns
// records. The server should save to disk: appendonly yes. Without persistence a
// restart forgets every lock and every record.
//
// core/redisstore/README.md lists the rights of the users under "Rights and settings".
// Check reports missing rights.
//
// # Requirements of the client
//
// Any client of go-redis works, except a Ring, an AutoPipeliner, and a client that reads
// from replicas. A *redis.Client must reach only one server at a time. A proxy in front
// of several servers can send the TIME to another server than the one that stores the
// key. WithProxy avoids this TIME.
//
// The client never retries an acquire, an extension or a release, whatever its
// settings. Otherwise a retry after a lost reply would find the Store's own lock and
// report it as busy. A call returns when its context is done, whatever the client's
// time-outs. If a caller leaves before the reply, the connection stays in use until the
// reply arrives, at most for the client's read time-out. With ContextTimeoutEnabled it
// stays in use at most until the context's deadline. Set ContextTimeoutEnabled, so that
// a hung server blocks no connection for longer than a call lasts. If a hook abandons a
// call that is not written yet, the call is never written. If the caller leaves before
// its call is written, the call is never written either. The exception is a call that
// is already in a pipeline with others.
//
// Calls that arrive while another call is in flight are sent together. Their pipelines
// use up to four connections, and a few more if a connection has become silent. The
// Store reuses commands after they have returned. So a hook must not keep a command
// after the hook has returned. A hook may keep the result of Clone.
//
// With ContextTimeoutEnabled, a call whose context is never done can run on its
// caller's goroutine. It does so if no other call is in flight. Such a call can take
// longer than two seconds if hooks, a Limiter, a dialer, OnConnect or a credentials
// provider of the client ignore their context. At most one call at a time is delayed
// like this. After a delay of more than four seconds, no call runs on its caller's
// goroutine for a minute.
//
// The Store calls scripts by their digest. If a server does not know a script, the
// Store sends the script's text. A server can forget its scripts at any time. The first
// argument of a script begins with the operation, for readers of SLOWLOG or MONITOR.
//
// A load balancer may forget idle connections without notifying either side. After a
// call that took too long, the Store sends a PING over each idle connection of the
// client, at most once in four seconds. It leaves two connections of the main pool to
// calls. In the meantime calls use new connections. The client closes a silent
// connection when its PING times out. If no connection is idle, the PING opens one. The
// call may have had too little time to connect. Set ConnMaxIdleTime below the load
// balancer's idle time-out, to avoid such calls. The default of go-redis is 30 minutes.
//
// After a failover the client's address may lead to another server, while its
// connections still lead to the former server. If a server answers LOADING, MASTERDOWN,
// READONLY, MOVED, CLUSTERDOWN, NOREPLICAS or NOAUTH, the Store closes the idle
// connections of the client, at most once a second. Later calls then connect to the
// server at the address. To close a connection, the Store sends a PING that fails
// before anything is written. Hooks see that PING. The connections of a Cluster client
// stay open, because that client finds the masters itself.
//
// # While a server is down
//
// A Store learns from the outcomes of its calls whether a server is down. A server is
// down in two cases. Either it refuses connections, or a call had no answer and then a
// probe had no answer within two seconds. While the server is down, the Store sends one
// probe at a time, on a separate connection. That connection has the client's options
// but not the client's hooks. Until a probe succeeds, acquires fail within about 100 ms,
// with store.ErrUnavailable and the error of the connection. Extend and Release are
// always sent.
//
// A hook of the client can dial another address than the separate connection. So, if
// probes have failed for four seconds, the Store from time to time also sends PINGs
// through the client itself.
//
// If connections were refused, the first acquire is granted as soon as the server is
// back. The client's pool may still refuse to connect for up to a second, but calls
// then use a separate client of the Store. If the server did not answer, the Store
// notices within two seconds that the server is back.
//
// # Guarantees and limits
//
// There is one exclusive holder at a time if the server loses no write that it has
// confirmed. A failover to a replica that has not received a grant loses the grant.
// WithReplicas makes that less likely, but not impossible.
//
// Plain keys have no fencing tokens, and WithRedisson describes those of Redisson's
// locks. Other tokens are at least the server's clock in microseconds. So tokens grow
// with every grant of a key, across release, expiry and failover. Tokens can decrease
// only if the clock is set back at one of three times: while the key is absent, while
// it has only a tombstone, or between a lock's SET and its TIME. A failover to a server
// whose clock is behind has the same effect. If another program deletes the key between
// SET and TIME, the deleted lock's token can be higher than the next holder's token.
// See core/PROOF.md.
package redisstore
