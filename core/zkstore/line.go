package zkstore

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// line is the queue of a key, read from the names of the children of the key's node.
type line struct {
	nodes   []node          // sorted by place
	tombs   map[string]bool // the leases with a tombstone, by digest
	plus    int64           // the addition to the tokens
	markers []string        // the names of the nodes with additions
	held    map[string]bool // the decisions so far, by node name
}

func newLine(children []string) line {
	l := line{tombs: make(map[string]bool), held: make(map[string]bool)}
	for _, name := range children {
		if rest, ok := strings.CutPrefix(name, string(tomb)+"."); ok {
			l.tombs[rest] = true
		} else if rest, ok := strings.CutPrefix(name, string(surcharge)+"."); ok {
			if n, err := strconv.ParseInt(rest, 36, 64); err == nil {
				l.plus = max(l.plus, n)
				l.markers = append(l.markers, name)
			}
		} else if n, ok := parse(name); ok {
			l.nodes = append(l.nodes, n)
		}
	}
	slices.SortFunc(l.nodes, func(a, b node) int {
		switch {
		case before(a.pos(), b.pos()):
			return -1
		case before(b.pos(), a.pos()):
			return 1
		case before(a.seq, b.seq):
			return -1
		}
		return 1
	})
	return l
}

func (l line) find(name string) (node, bool) {
	i := slices.IndexFunc(l.nodes, func(n node) bool { return n.name == name })
	if i < 0 {
		return node{}, false
	}
	return l.nodes[i], true
}

// ahead returns the nodes of other owners at places before n.
func (l line) ahead(n node) []node {
	var some []node
	for _, m := range l.nodes {
		if m.owner != n.owner && before(m.pos(), n.pos()) {
			some = append(some, m)
		}
	}
	return some
}

// waiting returns the approximate number of waiting nodes. It counts all nodes from the
// first that is not admitted.
func (l line) waiting() int {
	return len(l.nodes) - sort.Search(len(l.nodes), func(i int) bool { return !l.admits(l.nodes[i]) })
}

// weigh returns the sum of the weights. It counts each lease once, because a lease has a
// node for each session that keeps it. It counts every kept node.
func weigh(nodes []node) int64 {
	var sum int64
	seen := make(map[string]bool)
	for _, m := range nodes {
		if m.kind == kept || !seen[m.lease] {
			sum += m.weight
		}
		if m.kind != kept {
			seen[m.lease] = true
		}
	}
	return sum
}

// admits reports whether n is held.
//
// A plain node is held if the nodes ahead leave room for it, and all of them are held.
// Ahead of a node, nodes are removed but not added, with one exception. A further hold,
// a copy or a kept node joins at the place of an earlier node, whose owner is already
// counted there. So a node stays admitted once it is admitted, for every process and in
// every state of the queue that contains the node.
//
// A further hold overtakes the waiters. Its decision counts all nodes that may have
// been admitted when it was created.
func (l line) admits(n node) bool {
	// If limits differ, the result for a node depends on all nodes ahead of it.
	// Computing it anew each time would be slow.
	held, ok := l.held[n.name]
	if !ok {
		held = l.decide(n)
		l.held[n.name] = held
	}
	return held
}

func (l line) decide(n node) bool {
	if n.kind == kept {
		return true
	}
	if n.kind == reentry {
		var others []node
		for _, m := range l.nodes {
			if m.owner != n.owner && before(m.seq, n.seq) && (m.kind == reentry || m.kind == kept || l.early(m)) {
				others = append(others, m)
			}
		}
		return weigh(others)+n.weight <= n.limit
	}
	ahead := l.ahead(n)
	if weigh(ahead)+n.weight > n.limit {
		return false
	}
	// If all claims have one limit, the nodes ahead of an admitted node are also
	// admitted. Copies are also checked, because a copy may be the only node of a
	// waiter after a lost reply.
	return !slices.ContainsFunc(ahead, func(m node) bool { return m.limit != n.limit && (m.kind == plain || m.kind == copied) && !l.admits(m) })
}

// early reports whether node n may have been admitted before later nodes were created.
//
// A further hold or a kept node that was created after n shows that its owner had held
// the key before, at the same place. The owner held at least the same weight, because
// weights do not grow. So the node's weight counts, even if the first hold is gone.
func (l line) early(n node) bool {
	some := line{held: make(map[string]bool)}
	later := make(map[int32]node) // the heaviest later node, by place
	for _, m := range l.nodes {
		switch {
		case m.name == n.name || before(m.seq, n.seq):
			some.nodes = append(some.nodes, m)
		case (m.kind == reentry || m.kind == kept) && m.owner != n.owner && before(m.pos(), n.pos()) && m.weight > later[m.pos()].weight:
			later[m.pos()] = m
		}
	}
	for place, m := range later {
		m.weight -= weigh(some.at(place))
		if m.weight > 0 {
			m.kind, m.lease = kept, ""
			some.nodes = append(some.nodes, m)
		}
	}
	return some.admits(n)
}

func (l line) at(place int32) []node {
	var some []node
	for _, m := range l.nodes {
		if m.pos() == place {
			some = append(some, m)
		}
	}
	return some
}

// holds reports whether a lease is held, by any of its nodes.
func (l line) holds(lease string) bool {
	return slices.ContainsFunc(l.nodes, func(m node) bool { return m.kind != kept && m.lease == lease && l.admits(m) })
}

// twin returns another node of the same lease, at a place before n or at the same
// place.
func (l line) twin(n node) (node, bool) {
	for _, m := range l.nodes {
		if m.kind != kept && m.lease == n.lease && m.name != n.name && !before(n.pos(), m.pos()) {
			return m, true
		}
	}
	return node{}, false
}

// mate returns the heaviest hold of an owner, ignoring one lease.
func (l line) mate(owner, lease string) (node, bool) {
	var best node
	for _, m := range l.nodes {
		if m.kind != kept && m.owner == owner && m.lease != lease && m.weight > best.weight && l.admits(m) {
			best = m
		}
	}
	return best, best.weight > 0
}

func (l line) of(lease string) []node {
	var some []node
	for _, m := range l.nodes {
		if m.kind != kept && m.lease == lease {
			some = append(some, m)
		}
	}
	return some
}

// watched returns the nodes for which n waits. It also reports whether n has to watch
// their data, whose change shows that a waiter was admitted.
//
// If single nodes ahead leave no room for n, n waits only for the end of the nearest of
// them. For a writer that is the node just ahead. For a reader it is the nearest writer
// ahead. Otherwise n waits for the waiter just ahead to be admitted or to leave. The
// first waiter waits for any of the holders.
func (l line) watched(n node) (nodes []node, data bool) {
	ahead := l.ahead(n)
	for _, m := range slices.Backward(ahead) {
		if m.weight+n.weight > n.limit {
			return []node{m}, false
		}
	}
	for _, m := range slices.Backward(ahead) {
		if m.kind != kept && !l.admits(m) {
			return []node{m}, true
		}
	}
	return ahead, false
}
