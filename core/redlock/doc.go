// Package redlock keeps a lock on a majority of several independent stores,
// normally a redisstore on each of three or five servers that share nothing:
//
//	store, err := redlock.New([]core.Store{a, b, c})
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the nodes
//	if err := store.Check(ctx); err != nil {
//		return err // the same server twice, a replica, a node that is too young
//	}
//	locks, err := core.New(store)
//
// The lock survives the loss of a minority of the nodes: one of three, two of
// five. The scheme is known as Redlock,
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
//
// # What it promises
//
// One holder at a time, as long as a majority of the nodes lives and remembers,
// and as long as clocks run at rates that differ by less than WithDrift allows.
// Two majorities have a node in common, and that node keeps the two claims
// apart. A grant counts from the moment at which the claim was sent; the drift is
// taken off, and the holder is told of its loss before the rest has passed.
//
// It does not promise that a holder that was paused after its last look at its
// context, or a server whose clock jumps, does no harm; see
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
// What protects the resource is a token that it compares: WithFencing gives tokens
// that grow from majority to majority. A key that is granted so often that its
// tokens run ahead of the clock, by 16 ms a grant, is remembered at the nodes
// until the clock has caught up.
//
// # Nodes that are slow or down
//
// All nodes are asked at once, each within WithNodeTimeout, whatever its client's
// time-outs. Acquire answers at the majority, or as soon as none can come about.
// Late answers are looked after: what is granted to a claim that has failed is
// given back. When fewer than a majority answer, the error is that of an unknown
// outcome, or core.ErrUnavailable where nothing can have changed; a claim that a
// majority answers but does not grant is busy. Nodes that have not confirmed a release
// are told again in the background, for the TTL, and for a minute where an acquire
// may still reach them.
//
// A node that lacks a lock, because it was down or restarted, gets it back when a
// majority confirms the next extension, never later. In a split vote the claim
// that has the first node in order asks the others again, which have given back
// by then; so all processes should name the nodes in the same order.
//
// Nodes may have redisstore.WithPlainKeys, which costs less, and for exclusive claims
// only. Such a node cannot refuse an acquire that arrives after its release: after
// trouble in the network a key can stay taken by nobody for the rest of a TTL.
//
// # Nodes that forget
//
// A server that restarts without its data has forgotten who holds. Its votes do
// not count until it is older than the longest TTL (WithQuarantine, a minute by default,
// beyond which a TTL is refused). In a brand-new cluster nobody can hold
// anything: if all nodes answer, all are young, and none carries the mark that an
// earlier start has left, they count at once. That takes all nodes, so that a
// process that starts within the first minute of a cluster of which a node is
// down waits for the rest of it. A cluster that is restarted as a whole, with
// nothing on disk, cannot be told from a new one: two holders for up to a TTL. Nor is
// FLUSHALL noticed, or a proxy that changes the server behind its connections.
//
// The age is asked of core.Node, for which redisstore needs the right to use INFO.
// Where it cannot be had there is no quarantine.
//
// # What a majority cannot do
//
// Majorities keep any two claims apart. So exclusive claims work, and readers:
// a reader and a writer meet at a node that refuses one of them, and two readers
// need not be kept apart. Permits would have to be counted: of three claims for
// two permits, each pair of three nodes can admit two that the others have
// not seen. Nodes have no common order of arrival, so nothing is fair; and no node
// has the last state of a record, so package once needs another store. Such claims
// fail with core.ErrUnsupported before anything is sent.
package redlock
