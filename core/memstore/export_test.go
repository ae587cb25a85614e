package memstore

// Size returns the number of keys and of watched claims in s.
func (s *Store) Size() (keys, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys), len(s.watches)
}
