package casstore

// Store keeps locks in a Place.
type Store struct {
	place Place
	name  string
}

// Option is an option of New.
type Option func(*Store)

// WithName sets the name with which errors begin. The default is "casstore".
func WithName(name string) Option { return func(s *Store) { s.name = name } }

// New returns a Store in p. It sends nothing. It uses Usual, Watcher, Lister, Sweeper and
// store.Checker if p is one.
func New(p Place, opts ...Option) (*Store, error) {
	s := &Store{place: p, name: "casstore"}
	for _, o := range opts {
		o(s)
	}
	return s, nil
}
