package redlock

// WithoutHealing is for tests that show what healing is for.
func WithoutHealing() Option { return func(c *config) { c.unhealed = true } }

// Unsettled returns of how many leases s remembers something, and how many chores
// its janitor has.
func (s *Store) Unsettled() (leases, chores int) {
	s.janitor.mu.Lock()
	defer s.janitor.mu.Unlock()
	return s.ledger.size(), len(s.janitor.chores)
}
