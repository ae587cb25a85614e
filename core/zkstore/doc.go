// Package zkstore has the locks of package core in ZooKeeper 3.5 or later, which has
// container nodes. It works on one server or an ensemble, through a connection of
// go-zookeeper/zk.
//
//	conn, _, err := zk.Connect(servers, 10*time.Second)
//	if err != nil {
//		return err
//	}
//	defer conn.Close()
//	store, err := zkstore.New(conn)
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the connection
//	locks, err := core.New(store)
//
// # Nodes
//
// A key is a container node below the root, "/lk1/order:42" for the key "order:42". The
// servers remove it some time after its last child has gone. A claim is an ephemeral
// sequential child of it:
//
//	h.…  a claim, at its place in the queue
//	r.…  a further hold of an owner, at the place of its first
//	p.…  the same hold again, for another session that extends it too
//	k.…  a hold that stays for a while after a release with KeepFor; this one is not
//	     ephemeral
//	t.…  a lease that was released before it came
//	m.…  an addition to tokens, because a higher one was required
//
// The names have the weight, the limit, and digests of owner and lease, so that one
// listing decides. They also show the process (store.ProcessOf), for operators. The
// first claims hold, as far as there is room. A waiter watches one node, and is woken
// once.
//
// The token is 64 times the zxid of the transaction that created the node: the 63
// tokens after it belong to the same grant. Half of a zxid counts the elections of a
// leader, so tokens are below 2^53 for the first 32,767 of them, or fewer where m.…
// adds to them. From then on exclusive claims get no token, and claims that require
// one, such as Fenced, are refused with store.ErrUnsupported. An ensemble that elects a
// leader every day gets there in ninety years.
//
// So every claim has a place: no claim overtakes a waiter, whether the claims are fair
// or not.
//
// # Nodes that stay
//
// Nodes of a session are deleted with it, and a key's node when it is empty. ZooKeeper
// has no expiry for other nodes, so these stay:
//
//   - m.…, one for a key, and the key's node with it, for good: without it the next
//     token would be lower than the last. Only Claim.MinToken makes it. Fenced requires
//     no more than any token. A redlock.Store WithFencing that has this store among its
//     nodes requires more with most grants, and so leaves a node for each key. With
//     ever new keys, delete old nodes when their tokens are not compared any more.
//   - k.…, if the process that released exited before the kept time had passed, until the
//     next claim that it keeps out.
//   - A key's node whose maker died before it created its claim, until the key is next
//     used: the servers remove only nodes that have had a child.
//
// # Length of a lease
//
// A lease lasts until its TTL: the session would keep the node alive, so a timer of
// this process deletes it. If the process dies, the lease lasts until the end of the
// session. The key of a crashed holder is not free before the session's time-out has
// passed, however short the TTL.
//
// A lease is trusted for at most half of the session's time-out after the last
// confirmed write, and extended three times in that. A server that was cut off from the
// others goes on answering reads, so they prove nothing; a write is confirmed by a
// majority. So a lease of core.NoRenew expires by then, even if its TTL is longer. The
// clocks of the servers do not matter. The exception is KeepFor, whose time is counted
// by the leader's clock.
//
// The time-out is the one that the servers grant, which is between 2 and 20 of their
// ticks if nothing else is configured. All servers should have the same limits; see
// WithSessionTimeout.
//
// # While the servers are down
//
// When the client has had no session, or the servers have answered nothing, for two
// seconds, acquires fail within 50 ms, with store.ErrUnavailable. One acquire at a time
// is an exception: it waits for up to 180 ms. Extend and Release are always tried.
//
// The client's next connection ends that, and the client sets the pace: it pauses for a
// second when it has tried all servers. So the first acquire is granted within about a
// second of their return. After silence it is granted when the client has given up its
// old connection, which takes up to two thirds of the session's time-out. The client
// logs the error of a connection ("connection refused") to its logger only; errors say
// that it is not connected.
//
// Pings of the client keep load balancers and firewalls from forgetting an idle
// connection, if they remember it for a third of the session's time-out. If a
// connection falls silent all the same, the client replaces it, with the same session,
// within two thirds of the time-out. Calls that were sent on it then fail with an
// unknown outcome. A lease that was not confirmed meanwhile is lost after half of the
// time-out.
//
// A request that a server refuses because it is read-only or throttled, or because a
// quota is used up, fails with store.ErrUnavailable and that reason.
//
// # Requirements of the servers
//
// One server is as good as its disk. With its setting forceSync=no, a restart may
// forget grants. An ensemble grants while a majority lives. When a leader dies,
// sessions outlive the election.
//
// Records are refused with store.ErrUnsupported: an answer has to outlive its session,
// and nodes that outlive sessions do not expire.
package zkstore
