// Package redisstore keeps the locks of package core in Redis or Valkey 6.2 or later: on
// a single server, behind Sentinel, or in a Cluster.
//
//	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}))
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the client
//	if err := store.Check(ctx); err != nil {
//		return err // lists what makes this server unfit
//	}
//	locks, err := core.New(store)
//
// # Reading the code
//
// Begin with the scripts in the directory lua: clock.lua, state.lua, acquire.lua and
// release.lua. Continue with their callers: scripts.go, acquire.go, send.go, and
// internal/pipeline from its doc.go over pipeline.go and sender.go to once.go. Read the
// other parts when you need them: crowds (crowd.lua), waiters (waiters.lua, push.go,
// watch.go), plain keys (plain.go), Redisson (redisson.go), lists and cards.
//
// # Stored keys
//
// The whole state of a lock is in one key. So it is in one slot of a cluster, and every
// decision is one command or one script on one key. For the key "order:42" and no prefix
// of yours the name in Redis is "lk2:{order:42}". An exclusive lock to which nothing was
// added is
//
//	<ms> <owner> <lease>
//
// These are its length, its owner and its lease; it expires with its key. A SET NX PX
// writes it if the key is free, without a script. A TIME behind that SET gives the
// fencing token, which only the holder knows. Any other value is "f" and fields, each a
// tab, its name, a space and its text:
//
//	r          the record of a run: deadline, attempt, state, and the lease that
//	           began or saved it. A deadline of 0 is the end of the key
//	h:<lease>  a hold: the time at which it was written, its length from then on,
//	           owner and weight
//	k:<lease>  the same of a hold that was released but stays for a while, without
//	           an owner
//	d:<lease>  a lease that is refused because it was released before it came: the
//	           time at which that was written, and its length
//	t          the fencing token of the last exclusive grant, to which the 63 after
//	           it belong, too
//	w          the waiters, in order of arrival, all in one field
//	v          the value of the record, unchanged, at most 64 MiB
//
// A key with more than eight leases and no record is a hash with the same fields. It
// also has a list of leases for each owner (o:<owner>), and n, which sums up all leases.
// So the server does the same work for a reader or a permit beside ten others as beside
// thousands. An expired lease is dropped from a hash up to a second late if no answer
// depends on it.
//
// Times are on the server's clock. The time at which an entry was written is in
// microseconds. Its length, and the deadlines of records and waiters, are in
// milliseconds. An entry that was written in the future shows that the clock was set
// back. It then lasts for its length from now on, so a dead holder's key is still free
// after its TTL. Answers are kept for longer in this case. The key expires with its last
// entry. It is deleted when only tokens are left that the clock has passed: until then a
// release leaves a key, usually for 2 ms. Expired entries are dropped when the key is
// next used.
//
// A record takes the length of its value, at most a quarter more, and 400 bytes, for as
// long as it is retained. Each call on the key reads all of it, and usually writes all
// of it, so avoid locks on the key of a long record.
//
// A waiter is woken through a pub/sub channel of its Store, "lk2:wake:<id>", which the
// list of waiters names. The script that makes room publishes to it. If the process
// listens, the script has admitted the waiter for a moment by then, and the message says
// so. A Store subscribes when it waits, and unsubscribes a minute after the last wait.
//
// With WithPlainKeys a lock is one string with the name prefix and key, which holds the
// owner. With WithRedisson it is a hash, which lua/redisson.lua describes. The wake-ups
// of its locks are messages on a channel of each lock.
//
// The cards of all processes (store.Cards) are in one hash, "lk2:{}cards".
//
// # Requirements of the server
//
// The server must not evict keys: maxmemory-policy noeviction. A server out of memory
// refuses new locks, while held ones are still extended and released, and answers are
// still saved and returned. It should save to disk, appendonly yes. Otherwise a restart
// forgets every lock and every answer.
//
// The rights of its users are in core/redisstore/README.md, under "Rights and settings".
// Check names a missing one.
//
// # Requirements of the client
//
// Any client of go-redis works, with any configuration, except a Ring and an
// AutoPipeliner. A *redis.Client has to reach one server at a time. A proxy in front of
// several servers may ask another server for the time than the one that has the key,
// which WithProxy avoids.
//
// Commands of the Store are sent once, even if the client retries: otherwise a lost
// reply would make the Store's own lock come back as busy. A call returns when its
// context is done, whatever the client's time-outs. The connection of a call that its
// caller left returns to the pool when the client's read time-out has passed, or at the
// context's deadline if ContextTimeoutEnabled is set. Set it: then a server that hangs
// keeps no connection for longer than a call lasts. A call is not written any more if
// its caller left before that, or if a hook gave up on it.
//
// Calls that come while another one is in flight are sent together, in pipelines on up
// to four connections (a few more if one has gone silent). Commands that have returned
// are used again. So a hook must not keep them after it has returned; it may keep the
// result of Clone.
//
// With ContextTimeoutEnabled, a call under a context that is never done is made on its
// caller's goroutine if no other call is in flight. It can then take longer than two
// seconds if hooks, a Limiter, a dialer, OnConnect or a credentials provider of the
// client do not heed their context. At most one call at a time is held up like this. If
// it took four seconds, no call is made on its caller's goroutine for a minute.
//
// Scripts are called by their digest, and with their text when a server does not know
// them, which can be at any moment. The first argument begins with the operation, for
// readers of SLOWLOG or MONITOR.
//
// A load balancer may forget idle connections without a message to either side. After a
// late call, the Store sends a PING over each idle connection of the client, at most
// once in four seconds. Meanwhile calls use new connections. A silent connection is
// closed when its PING times out. A PING also makes a connection for which a call had no
// time. Set ConnMaxIdleTime below the idle timeout of the load balancer (go-redis has 30
// minutes): then no call is late.
//
// After a failover the address of the client may lead to another server, while its
// connections lead to the former one. If a server answers LOADING, MASTERDOWN, READONLY,
// MOVED, CLUSTERDOWN, NOREPLICAS or NOAUTH, the Store closes the idle connections of the
// client, at most once a second. Later calls then connect to the server of the address.
// The Store closes a connection by a PING that fails before anything is sent, which
// hooks see. A cluster client looks for the masters by itself, so its connections stay.
//
// # While a server is down
//
// A Store learns from the outcomes of its calls whether a server is down. It is down if
// it refuses connections, or if a call had no answer and then a probe had none within
// two seconds. While it is down, one probe at a time asks it, on a connection of the
// Store's own. That connection is made with the client's options but without its hooks.
// Other acquires fail at once, with store.ErrUnavailable and the error of the
// connection. Extend and Release are always sent.
//
// If connections are refused, the first acquire is granted as soon as the server is
// back, even while the client's pool goes on refusing for up to a second: calls then use
// the Store's own client. A server that was silent is known to be back within two
// seconds.
//
// # Guarantees and limits
//
// There is one holder at a time as long as the server keeps what it has confirmed. A
// failover to a replica that had not seen a grant forgets the grant; WithReplicas makes
// that less likely, not impossible.
//
// Fencing tokens grow with every grant of a key, across release, expiry and failover,
// because they are at least the server's clock in microseconds. They can go back only if
// the clock is set back: while the key is absent, while it has only a refused lease, or
// between the SET of a lock and its TIME. If another program deletes the key between
// these two, the token can be later than that of the next holder. See core/PROOF.md.
package redisstore
