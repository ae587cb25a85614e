// Package zkstore stores the locks of package core in ZooKeeper 3.5 or later, which has
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
// servers remove a key's node some time after its last child was deleted. A claim is a
// child of the key's node. The children are:
//
//	h.…  a claim, at its place in the queue
//	r.…  a further hold of an owner, at the place of the owner's first hold
//	p.…  a copy of a hold, for another session that extends the hold too
//	k.…  the weight that stays taken after a release with KeepFor, or after a revoke
//	t.…  the tombstone of a lease that was released before its acquire arrived
//	m.…  an addition to the key's tokens, because a claim required a higher token
//
// All these children are ephemeral, except k.… and m.…. A claim's name contains the
// weight, the limit, and digests of owner and lease. So one listing of the children is
// enough to decide which claims hold the key. The name also shows the process
// (store.ProcessOf) to operators. The first claims in the queue hold the key, as far as
// their limits admit them. A waiter watches the nearest claim ahead that alone leaves
// no room for it, or else the waiter just ahead. If only several holders together keep
// out the first waiter, it watches each of these holders.
//
// The first token of a grant is 64 times the zxid of the transaction that created its
// node, plus the addition of m.…. The 63 tokens after it belong to the same grant. The
// upper half of a zxid counts the elections of a leader. So tokens are below 2^53 for
// the first 32,767 elections, or for fewer if m.… adds to the tokens. After that,
// exclusive claims get no token. Claims that require a token, such as Fenced, are then
// refused with store.ErrUnsupported. An ensemble that elects a leader every day reaches
// this limit after ninety years.
//
// Every claim has a place in the queue, even if it is not fair. So no claim overtakes a
// waiter, except a further hold of an owner that already holds.
//
// # Nodes that stay
//
// The servers delete the nodes of a session with the session, and a key's node when it
// is empty. By default ZooKeeper does not expire other nodes, so these stay:
//
//   - m.…, one node for each key of which a claim required a higher token, for good.
//     The key's node stays with it. Without the m.… node the next token would be lower
//     than the last. Only Claim.MinToken creates an m.… node. Fenced accepts any token,
//     so it creates none. A redlock.Store WithFencing that has this store among its
//     nodes requires a higher token with most grants, and so leaves an m.… node for
//     each key. If the application always locks new keys, delete the nodes of old keys
//     once nothing compares their tokens.
//   - k.…, if the process that released or revoked the hold exited before the kept time
//     had passed. The next claim that finds the node in its way deletes it.
//   - A key's node, if its creator died before creating a claim, until the key is
//     next used. The servers remove only nodes that have had a child.
//
// # Length of a lease
//
// A lease lasts until its TTL has expired. The session would keep the node alive, so a
// timer of this process deletes the node. If the process dies, the lease lasts until
// the session expires. So the key of a crashed holder is free only after the session's
// time-out, however short the TTL.
//
// A lease is trusted for at most half of the session's time-out after the start of the
// last confirmed write. The Locker extends the lease three times in that period. Only
// writes extend the trust, because a majority confirms them. Reads prove nothing,
// because a server that is cut off from the other servers still answers them. A lease
// with core.NoRenew is not extended. So it expires after at most half of the time-out,
// even if its TTL is longer. For locks, the clocks of the servers do not matter, with
// one exception. The leader's clock counts the time for which KeepFor or a revoke keeps
// a key taken. Cards also expire by this clock.
//
// The servers decide the session's time-out. By default the servers grant 2 to 20 of
// their ticks. All servers should have the same limits; see WithSessionTimeout. If a
// restart lowers these limits, a client that connects again is granted a shorter
// time-out. The next grant or extension follows it, but a lease that was confirmed
// before is trusted as long as before. So set WithSessionTimeout to the new time-out in
// all processes before the servers lower their limits.
//
// # While the servers are down
//
// If the client has had no session for two seconds, or the servers have not answered
// for two seconds, an acquire waits for at most 100 ms. Then it fails with
// store.ErrUnavailable. Extend and Release are always tried.
//
// When the client is connected again, acquires work again. After the client has tried
// all servers, it pauses for a second. So the first acquire is granted within about a
// second of the servers' return. If the servers were silent, the first acquire is
// granted when the client has abandoned its old connection. This takes up to two thirds
// of the session's time-out, and longer if a server is frozen. The client logs the
// cause of a failed connection ("connection refused") to its own logger only. The
// errors of this store only say that the client is not connected.
//
// Load balancers and firewalls can forget an idle connection. The client's pings
// prevent this if an idle connection is remembered for at least a third of the
// session's time-out. If a connection falls silent nevertheless, the client abandons it
// within two thirds of the time-out. It keeps its session if another server answers
// before the session expires. Calls that were sent on the silent connection then fail
// with an unknown outcome. A lease that was not confirmed in the meantime is lost after
// half of the time-out.
//
// A frozen server can still accept connections. A client that connects to it waits for
// almost seven session time-outs (20/3) for the first bytes of a reply, and without a
// limit for the rest. Only then does it try the next server, so its session expires. To
// limit this wait, connect with zk.WithDialer and a connection that shortens deadlines:
//
//	type limited struct {
//		net.Conn
//		most time.Duration // two thirds of the session's time-out
//	}
//
//	func (c limited) SetReadDeadline(t time.Time) error {
//		if limit := time.Now().Add(c.most); t.IsZero() || t.After(limit) {
//			t = limit
//		}
//		return c.Conn.SetReadDeadline(t)
//	}
//
// A server can refuse a request because the server is read-only or throttled, or
// because a quota is exhausted. Such a call fails with store.ErrUnavailable and that
// reason.
//
// # Requirements of the servers
//
// A single server is only as durable as its disk. With forceSync=no, a restart may
// forget grants. An ensemble grants while a majority of its servers is alive. Sessions
// outlive the death of a leader and the election after it.
//
// Records are refused with store.ErrUnsupported. A record must outlive the session of
// its claim, and must expire. ZooKeeper does not expire nodes that outlive sessions.
package zkstore
