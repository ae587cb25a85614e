package redlock

import "github.com/lockkit/lockkit/core/store"

// WithoutHealing turns off healing, so that a claim is not restored at nodes that lack
// it. A test uses it to check the quarantine alone.
func WithoutHealing() Option { return func(c *config) { c.unhealed = true } }

// Unsettled returns the number of claims in the request log and of cleanup tasks.
func (s *Store) Unsettled() (claims, tasks int) {
	s.cleanup.mu.Lock()
	defer s.cleanup.mu.Unlock()
	return s.requests.size(), len(s.cleanup.tasks)
}

// UnderWay returns the number of claims with requests in flight or planned, and the
// number of claims that have only requests without an answer, which are not repeated.
func (s *Store) UnderWay() (requests, unanswered int) {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	for _, e := range s.requests.entries {
		busy := e.extends > 0
		for _, n := range e.nodes {
			busy = busy || n.acquires > 0 || n.releases > 0 || n.releasesPlanned > 0
		}
		if busy {
			requests++
		}
	}
	return requests, len(s.requests.entries) - requests
}

// Agreed returns the state that a Store of n nodes shows if some of the nodes show the
// given states.
func Agreed(n int, key string, states []store.State) store.State {
	return (&Store{nodes: someNodes(n), quorum: n/2 + 1}).majority(key, states)
}

// Cursor parses a cursor of List for a Store of n nodes.
func Cursor(n int, text string) (node, failed int, after string, err error) {
	c, err := (&Store{nodes: someNodes(n)}).parseCursor("list", text)
	return c.node, c.failed, c.after, err
}

func someNodes(n int) []*node { return make([]*node, n) }
