// Package redisstore keeps the locks of package core in Redis or Valkey 6.2 or
// later: on a single server, behind Sentinel, or in a Cluster.
//
//	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}))
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the client
//	if err := store.Check(ctx); err != nil {
//		return err // says what makes this server unfit
//	}
//	locks, err := core.New(store)
//
// # Reading the code
//
// The scripts come first: clock.lua, state.lua, acquire.lua and release.lua in lua. Then how
// they are called: scripts.go, acquire.go, send.go, and internal/pipeline from its doc.go over
// pipeline.go and sender.go to once.go. Each of these can wait until it is needed: crowds
// (crowd.lua), waiters (waiters.lua, push.go, watch.go), plain keys (plain.go), Redisson
// (redisson.go), lists and cards.
//
// # What is stored
//
// All that is known of a lock is in one key. So it is in one slot of a cluster, and
// every decision is one command or one script on one key. For the key "order:42" and
// no prefix of yours it is "lk2:{order:42}". An exclusive lock that nothing was added to is
//
//	<ms> <owner> <lease>
//
// for how long it lasts, and whose it is, which ends when its key does. A SET NX PX
// writes it where the key is free, without a script. A TIME behind that SET gives the
// fencing token, which only the holder knows. Anything else is "f" and fields, each a
// tab, its name, a space and its text:
//
//	r          the record of a run: deadline, attempt, state, and the lease that
//	           began or saved it. A deadline of 0 is the end of the key
//	h:<lease>  a hold: when it was written, for how long it lasts from then on,
//	           owner and weight
//	k:<lease>  the same of a hold that was released but stays for a while, without
//	           an owner
//	d:<lease>  a lease that is refused, as it was released before it came: when
//	           that was written, and for how long
//	t          the fencing token of the last exclusive grant, to which the 63 after
//	           it belong, too
//	w          the waiters, in order of arrival, all in one field
//	v          the value of the record, as it came, 64 MiB at most
//
// A key with more than eight leases and no record is a hash with the same fields. It also
// has a list of leases for each owner (o:<owner>), and n, which sums up all leases. So a
// reader or a permit costs the server the same beside ten others and beside thousands. An
// expired lease is dropped there up to a second late if no answer depends on it.
//
// Times are on the server's clock. The time at which an entry was written is in
// microseconds; how long it lasts, and the deadlines of records and waiters, are in
// milliseconds. An entry that was written in the future shows that the clock was set
// back. It lasts for its time from now on, so a dead holder's key is free after its TTL
// then, too. Answers are kept for longer in this case. The key expires with its last
// entry. It is deleted when nothing is left but tokens that the clock has passed: until
// then a release leaves a key, mostly for 2 ms. Entries that have ended are dropped when
// the key is next used.
//
// A record takes the length of its value, a quarter more at most, and 400 bytes,
// for as long as it is retained. All of it is read, and mostly written, by each call on
// the key, so avoid locks on the key of a long one.
//
// A waiter is woken through a pub/sub channel of its Store, "lk2:wake:<id>",
// named in the list of waiters; the script that makes room publishes to it. If
// the process listens, the script has admitted the waiter for a moment by then,
// and says so. A Store subscribes when it waits, and ends that a minute after the last wait.
//
// With WithPlainKeys a lock is one string, prefix and key, that holds the owner. With
// WithRedisson it is a hash, which lua/redisson.lua describes. The wake-ups of its locks are
// messages on a channel of each lock.
//
// All processes that have a card (store.Cards) are in one hash, "lk2:{}cards".
//
// # What the server has to be
//
// It must not evict keys: maxmemory-policy noeviction. A server out of memory
// refuses new locks, while held ones are still extended and released, and answers
// are saved and given. It should save to disk, appendonly yes, as otherwise a
// restart forgets every lock and every answer.
//
// The rights that its users need are in core/redisstore/README.md, under "Rights and
// settings". Check names one that is missing.
//
// # What the client may be
//
// Any client of go-redis but a Ring or an AutoPipeliner, with any configuration. What a
// *redis.Client reaches has to be one server at a time: a proxy before several may ask
// another one for the time than the one that has the key. Commands
// of the Store are sent once, whatever the client retries: otherwise a lost reply would
// make the Store's own lock come back as busy. A call returns when its context ends,
// whatever the client's time-outs; the connection of a call that was left returns to the pool when
// the client's read time-out has passed, or at the context's deadline if
// ContextTimeoutEnabled is set. Set it: a server that hangs then keeps no connection
// for longer than a call lasts. A call that its caller left before it was written is not
// written any more, nor is one that a hook gave
// up on.
//
// Calls that come while another one is under way go together, in pipelines on
// up to four connections (a few more where one has gone silent), and commands
// that have come back are used again. So a hook must not keep them after it has
// returned; it may keep what Clone gives.
//
// With ContextTimeoutEnabled a call under a context that cannot end is made on
// its caller's goroutine if no other call is under way. It can then take longer than two
// seconds if hooks, a Limiter, a dialer, OnConnect or a credentials provider of the client
// do not heed the end of their context. At most one call at a time is held like this. When it
// took four seconds, no call is made on its caller's goroutine for a minute.
//
// Scripts are called by their digest, and with their text when a server does not
// know them, which can be at any moment. The first argument begins with the
// operation, for readers of SLOWLOG or MONITOR.
//
// A load balancer may forget idle connections without a message to either side. After a
// call that was late, the Store sends a PING over each idle connection of the client, at
// most once in four seconds. Calls use new connections meanwhile. A silent connection is
// closed when its PING times out. A PING also makes a connection that a call had no time
// to make. Set ConnMaxIdleTime below the idle timeout of the load balancer (go-redis has
// 30 minutes): then no call is late.
//
// After a failover the address of the client may lead to another server, while its
// connections lead to the former one. If a server answers LOADING, MASTERDOWN, READONLY,
// MOVED, CLUSTERDOWN, NOREPLICAS or NOAUTH, the Store closes the idle connections of the
// client, at most once a second. Later calls then connect to the server of the address. It
// does so by a PING that fails before anything is sent, which hooks see. A cluster client
// looks for the masters by itself, so its connections stay.
//
// # While a server is down
//
// A Store knows of each server, by the outcomes of its calls, whether it is down: it
// refuses connections, or a call had no answer, and then a probe none within two seconds.
// Then one probe at a time asks it, on a connection of the Store's own that is made with
// the client's options but without its hooks, and other acquires fail at once, with
// store.ErrUnavailable and what the connection said. Extend and Release are always
// sent. Where connections are refused the first acquire is granted as soon as the
// server is back, also while the client's pool goes on refusing for up to a second:
// calls go by the Store's own client then. A server that was silent is known to be back
// within two seconds.
//
// # What it promises
//
// There is one holder at a time as long as the server keeps what it has confirmed. A failover to a replica that had not seen a grant forgets it;
// WithReplicas makes that less likely, not impossible. Fencing tokens grow with
// every grant of a key, across release, expiry and failover, because they are at
// least the server's clock in microseconds. They can go back only if the clock is
// set back: while the key is absent, while it tells only of a lease that is refused, or
// between the SET of a lock and its TIME. If another program deletes the key between
// these two, the token can be later than that of the next holder. See core/PROOF.md.
package redisstore
