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
// # What is stored
//
// All that is known of a lock is in one key, so that it lives in one slot of a
// cluster and every decision is one script on one key. For the key "order:42" and
// the default prefix it is "lk1:{order:42}". An exclusive lock is a string,
//
//	<since> <ms> <owner> <lease>
//
// when it was written, for how long it lasts from then on, and whose it is. Since is
// its fencing token too, unless another one stands behind it. Any other lock, and
// that of a run, is a hash with the fields
//
//	h:<lease>  a hold: when it was written, for how long it lasts from then on,
//	           owner and weight
//	k:<lease>  the same of a hold that was released but stays for a while, without
//	           an owner
//	d:<lease>  a lease that is refused, as it was released before it came: when
//	           that was written, and for how long
//	t          the fencing token of the last exclusive grant, to which the 63 after
//	           it belong, too
//	w          who waits, in order of arrival, in one field however many wait
//	r          the record of a run: deadline, attempt, state, and who began or
//	           saved it
//	v          the value of the record, as it came, 64 MiB at most
//
// A hold without a weight is exclusive and was granted a free key. Its token is
// when it was written, and t is not there until something else is written. What
// comes to stand beside the hold in a string, such as who waits, joins it there: the
// string is "f" then, and for each field a tab, its name, a space and its value.
// While it is there, a key stays the string or the hash that it was at first.
//
// Times are on the server's clock: when something was written in microseconds, for
// how long in milliseconds, the deadlines of records and waiters in milliseconds
// too. What was written in the future shows that the clock was set back, and lasts
// for its time from now: a dead holder's key is free after its TTL also then.
// Answers are kept for longer in this case. The key expires when the last of all
// this has ended, and is deleted when nothing is left but tokens that the clock
// has passed: a lock that is released within 64 µs leaves a key for 2 ms. What has ended is dropped when the key is next used.
//
// A record takes the length of its value, a quarter more at most, and 400 bytes,
// for as long as it is retained. A finished one is read only for who is answered
// with it, and by plain claims of the same key, of which there had better be none.
//
// A waiter is woken through a pub/sub channel of its Store, "lk1:wake:<id>",
// named in the list of waiters; the script that makes room publishes to it. If
// the process listens, the script has admitted the waiter for a moment by then,
// and says so. A Store subscribes once, when it first waits.
//
// With WithPlainKeys a lock is one string, prefix and key, that holds the owner.
//
// # What the server has to be
//
// It must not evict keys: maxmemory-policy noeviction. A server out of memory
// refuses new locks, while held ones are still extended and released, and answers
// are saved and given. It should save to disk, appendonly yes, as otherwise a
// restart forgets every lock and every answer.
//
// A user needs no more than this, +cluster|slots +command +asking in a Cluster,
// +wait for WithReplicas, and +info for Check:
//
//	ACL SETUSER locks on >secret ~lk1:* &lk1:wake:*
//	    +eval +evalsha +get +set +hgetall +hget +hset +hdel +type +del +time +pexpire +pttl
//	    +publish +subscribe +unsubscribe +pubsub|numsub +ping
//
// and with plain keys
//
//	ACL SETUSER locks on >secret ~lk1:*
//	    +eval +evalsha +get +set +del +pexpire +pttl
//
// Without the right to publish or subscribe waiters poll, and without that to
// PUBSUB NUMSUB they are woken and then have to ask.
//
// # What the client may be
//
// Any client of go-redis but a Ring or an AutoPipeliner, configured as its owner likes. Whatever it
// retries, commands of the Store are sent once: a lost reply would otherwise make
// our own lock come back as busy. Whatever its time-outs, a call returns when its
// context ends; the connection of a call that was left returns to the pool when
// the client's read time-out has passed, or at the context's deadline if
// ContextTimeoutEnabled is set, which is worth setting. A call that its caller
// left before it was written is not written any more, nor is one that a hook gave
// up on.
//
// Calls that come while another one is under way travel together, in pipelines on
// up to four connections (a few more where one has gone silent), and commands
// that have come back are used again. So a hook must not keep them after it has
// returned; it may keep what Clone gives.
//
// With ContextTimeoutEnabled a call under a context that cannot end is made on
// its caller's goroutine. It can then take longer than two seconds if hooks, a
// Limiter, a dialer, OnConnect or a credentials provider of the client do.
//
// Scripts are called by their digest, and with their text when a server does not
// know them, which can be at any moment. The first argument begins with the
// operation, for who reads SLOWLOG or MONITOR.
//
// # What it promises
//
// That there is one holder at a time holds as long as the server keeps what it
// has confirmed. A failover to a replica that had not seen a grant forgets it;
// WithReplicas makes that less likely, not impossible. Fencing tokens grow with
// every grant of a key, across release, expiry and failover, because they are at
// least the server's clock in microseconds; they can go back only if the clock is
// set back while the key is absent, or tells only of a lease that is refused. See
// core/PROOF.md.
package redisstore
