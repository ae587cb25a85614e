package outage

// downError says that nothing was sent, and why.
type downError struct{ why error }

func (e *downError) Error() string {
	return "not sent, the server is known to be down: " + e.why.Error()
}

func (e *downError) Unwrap() error { return e.why }

func (e *downError) Down() bool { return true }

// Known tells that err says that a server is known to be down, so that it is no use
// to ask again at once. An error says so by a method Down() bool. The one that is
// nearest to err decides over those that it wraps.
func Known(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case interface{ Down() bool }:
		return e.Down()
	case interface{ Unwrap() error }:
		return Known(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if Known(one) {
				return true
			}
		}
	}
	return false
}
