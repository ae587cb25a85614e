// Package redlock has locks on a majority of several independent stores, normally a
// redisstore on each of three or five servers that share nothing:
//
//	store, err := redlock.New([]store.Store{a, b, c})
//	if err != nil {
//		return err
//	}
//	defer store.Close() // before the nodes
//	if err := store.Check(ctx); err != nil {
//		return err // the same server twice, a replica, or a node that is too young
//	}
//	locks, err := core.New(store)
//
// The lock survives the loss of a minority of the nodes: one of three, two of
// five. The scheme is known as Redlock,
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
//
// # Guarantees
//
// There is one holder at a time, as long as a majority of the nodes is up and remembers its
// holds, and as long as the rates of the clocks differ by less than WithDrift allows. Two
// majorities have a node in common, and that node grants the key to one claim only. The
// validity of a grant counts from the moment at which the claim was sent. The drift is taken
// off, and the holder learns of its loss before the rest has passed.
//
// The clock of each node that two majorities share has to keep to that. If all clients reach
// all nodes, the others outvote a minority of clocks that jump. If two clients reach
// different majorities, such as 0, 1, 2 and 2, 3, 4 of five nodes, the clock of node 2 alone
// is enough for two holders.
//
// There can also be two holders if one was paused after it last checked its context; see
// https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html.
// A resource is protected if it compares tokens: WithFencing gives tokens that grow from
// majority to majority. Each grant raises the token by 16 ms or more. If a key is granted so
// often that its tokens are ahead of the clock, the nodes remember the key until the clock
// has passed them.
//
// # Nodes that are slow or down
//
// All nodes are asked at once. A call returns when a majority has decided, or as soon as no
// majority can. Until then it waits for slow nodes: until its ctx is done, for Limit at most,
// and no longer than a grant could be valid. A dead node adds nothing to that. Only if the
// others are split does a call wait for it, for the time of WithNodeTimeout.
//
// A claim that a majority answers but does not grant is busy. If no majority answers, the
// error is store.ErrUnavailable if nothing can have changed; otherwise the outcome is
// unknown. Answers that come later are handled: if the claim has failed, a late grant is
// released. A release that a node has not confirmed is sent again in the background, for
// the TTL, and for at least a minute if an acquire may still reach it.
//
// A node that lacks a lock because it was down or restarted gets it back when a majority
// confirms the next extension. Only the Store that sent the extension can stop that: release
// a claim by the Store that extends it, or the key can stay taken for a TTL.
//
// In a split vote the claim that has the first node asks the others again. The other claims
// are released, and then ask one node first, and the others only behind it. So all processes
// should name the nodes in the same order.
//
// Nodes may use redisstore.WithPlainKeys, which costs less but serves exclusive claims only.
// Such a node cannot refuse an acquire that arrives after the release of its claim: after
// trouble in the network a key can stay taken without a holder for the rest of a TTL.
//
// # Nodes that forget
//
// A server that restarts without its data has forgotten its holds. Its votes do not count
// until it is older than the longest TTL. WithQuarantine sets that TTL, a minute by default,
// and longer ones are refused.
//
// A new cluster has no holds to forget. Its nodes count at once if all of them answer,
// all are young, and none has the mark of an earlier start. If one of them is down, a
// process waits until the first minute of the cluster has passed.
//
// A cluster that is restarted as a whole, with nothing on disk, looks like a new one: there
// can be two holders for up to a TTL. The same is true after FLUSHALL, or if a proxy changes
// the server behind its connections.
//
// The age comes from store.Node, for which redisstore needs the right to use INFO. A node
// that does not know its age has no quarantine.
//
// # Limits of a majority
//
// Any two majorities have a node in common, and that node refuses one of two claims that
// exclude each other. So exclusive claims and readers work. Permits do not, since they would
// have to be counted: of three claims for two permits, each can have a majority of three
// nodes, although no node has admitted more than two. Nodes have no common order of arrival,
// so there is no fairness. No node is sure to have the last state of a record, so package
// once needs another store. Such claims fail with store.ErrUnsupported before anything is
// sent.
package redlock
