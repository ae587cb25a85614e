package memstore

// Size returns of how many keys and watched claims s knows.
func (s *Store) Size() (keys, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys), len(s.watches)
}
