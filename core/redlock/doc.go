// Package redlock implements locks on a majority of several independent stores,
// normally a redisstore on each of three or five servers that share nothing:
//
//	store, err := redlock.New([]store.Store{a, b, c})
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the nodes
//	if err := store.Check(ctx); err != nil {
//		return err // a server is given twice, is a replica, or has restarted recently
//	}
//	locks, err := core.New(store)
//
// The lock survives the loss of a minority of the nodes: one of three, two of
// five. The scheme is known as Redlock,
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
//
// # Guarantees
//
// There is one exclusive holder at a time under two conditions. First, a majority of the
// nodes is up and remembers its holds. Second, the rates of the clocks differ by less
// than WithDrift allows. Two majorities have a node in common, and that node grants the
// key to one claim only. The validity of a grant counts from the moment at which the
// claim was sent, and the drift is subtracted from the validity. The holder learns of a
// loss before the validity has passed.
//
// The second condition applies to the clock of every node that two majorities share. If
// all clients reach all nodes, the other nodes outvote a minority of nodes whose clocks
// jump. Two clients can also reach different majorities, such as nodes 0, 1, 2 and
// nodes 2, 3, 4 of five. Then a jump of the clock of node 2 alone is enough for two
// holders.
//
// There can also be two holders if the first holder was paused after the last check of
// its context. See
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
// WithFencing protects a resource that compares tokens. Each exclusive grant then gets
// a higher token than the grant before, whichever nodes form the majority. A token
// counts microseconds of the nodes' clocks, and each grant raises the token by at least
// 16,384 (16 ms). The tokens of a key that is granted very often can be ahead of the
// clock. The nodes then remember the key until the clock has passed the tokens. A node
// that was restarted has forgotten them. So tokens that are ahead of the clock can
// decrease if one node was restarted and another one is down.
//
// # Nodes that are slow or down
//
// Every call except List first asks all nodes at once. An Acquire, an Extend or a
// Release usually returns when a majority has decided, or when no majority can decide
// any more. There are two exceptions. An Acquire that is refused also waits until the
// nodes that had granted the claim have released it. A Release with a TTL of 0 waits
// for all nodes. [Store.Acquire] and [Store.Release] describe the limits of these
// waits.
//
// A call stops waiting for slow nodes when its ctx is done, when Limit has passed, or
// when a grant could no longer be valid. The first Acquire also checks the servers.
// Apart from this check and from the two exceptions, a dead node lengthens an Acquire,
// an Extend or a Release only in two cases. First, the other nodes are split. An
// Acquire then waits for the dead node for the time of WithNodeTimeout. An Extend or a
// Release can wait for it until ctx is done or Limit has passed. Second, the Store has
// not noticed yet that the node does not answer. An Acquire can then wait for the node
// for at most the time of WithNodeTimeout. Look and Revoke wait for all nodes for the
// time of WithNodeTimeout, and then only until a majority has answered.
//
// If a majority answers but does not grant the claim, the claim is refused, usually as
// busy. If no majority answers, the outcome is unknown, unless certainly nothing has
// changed. In that case the error matches store.ErrUnavailable. If the claim has
// failed, a grant that arrives later is released. A release that a node has not
// confirmed is sent again in the background. This continues for the TTL, and for at
// least a minute if an earlier request may still reach the node.
//
// A node that has not answered the release of a claim does not get an acquire of the
// same claim for at least a minute, because the release may arrive after it. A
// core.Locker sends the same claim again while its Acquire waits. So such an Acquire can
// fail with store.ErrUnavailable although a majority is up again. The next Acquire sends
// another claim.
//
// A node can lack a lock because it was down or restarted. When a majority confirms the
// next extension, the Store restores the lock at that node. A release by another Store
// does not prevent this restoration. So release a claim with the Store that extends it.
// Otherwise the key can stay taken for a TTL.
//
// In a split vote, the first node at which the key is held decides. The claim that this
// node has granted is sent again to the busy nodes. The other claims are released. Each
// of the other claims is then sent to one node first, and to further nodes only if that
// node does not refuse the claim. So all processes should list the nodes in the same
// order.
//
// Nodes may use redisstore.WithPlainKeys, which costs less but supports exclusive claims
// only. Such a node cannot refuse an acquire that arrives after the release of its
// claim. So after network faults a key can stay taken without a holder for the rest of
// a TTL.
//
// # Nodes that forget
//
// A server that was restarted may have forgotten its holds. Its votes do not count
// until it is older than the longest TTL. WithQuarantine sets the longest TTL, which is
// a minute by default. If any node implements store.Node, claims with longer TTLs are
// refused.
//
// A new cluster has no holds to forget. Its nodes count at once under three conditions:
// all nodes answer, all are younger than the longest TTL, and none has the mark of an
// earlier start of the cluster. If a node is down, the others do not count until they
// are older than the longest TTL.
//
// A cluster whose nodes all restart with nothing on disk looks like a new cluster. There
// can then be two holders for up to a TTL. The same is true after FLUSHALL, or if nobody
// notices that a node has another server or other data: a proxy replaces the server
// behind its connections, the address moves while the earlier server still answers, or
// a server is a replica for a while.
//
// A node's store reports the age of its server through store.Node, for which redisstore
// needs the right to use INFO. A node whose age was never reported has no quarantine. If
// the age was reported before and is refused later, the node's votes do not count.
//
// Redis computes its age from the time of day. A process believes the first age that it
// sees of a server, so a clock that is set later changes nothing. A process that has seen
// another server or a replica at the node does not believe an age that is too high. A new
// process does, for example after the clock of a restarted server was set forward, or
// after a replica with an age of its own became the master.
//
// # Limits of a majority
//
// Any two majorities have a node in common, and that node refuses one of two claims
// that exclude each other. So exclusive claims and readers work. Permits do not work:
// no single node sees all grants, so no node can count them. For example, three claims
// can compete for two permits at three nodes. Each claim can get a majority, although
// no node admits more than two claims. The nodes have no common order of arrival, so
// there is no fairness. No node certainly has the last state of a record, so package
// once needs another store. Claims of these kinds fail with store.ErrUnsupported before
// anything is sent.
package redlock
