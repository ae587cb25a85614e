package outage

import "errors"

// downError says that nothing was sent, and why.
type downError struct{ why error }

func (e *downError) Error() string {
	return "not sent, the server is known to be down: " + e.why.Error()
}

func (e *downError) Unwrap() error { return e.why }

func (e *downError) Down() bool { return true }

// Known tells that err says that a server is known to be down, so that it is no use
// to ask again at once. An error says so by a method Down() bool. The one that
// errors.As finds decides, over those that it wraps too.
func Known(err error) bool {
	var e interface{ Down() bool }
	return errors.As(err, &e) && e.Down()
}
