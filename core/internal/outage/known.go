package outage

import "errors"

// downError is returned when nothing was sent because the server is down.
type downError struct{ why error }

func (e *downError) Error() string {
	return "not sent, the server is known to be down: " + e.why.Error()
}

func (e *downError) Unwrap() error { return e.why }

func (e *downError) Down() bool { return true }

// Known reports whether err comes from a server that is known to be down. An immediate
// retry is then useless. Such an error has a method Down() bool. The first error with
// this method that errors.As finds decides. The errors that it wraps do not matter.
func Known(err error) bool {
	var e interface{ Down() bool }
	return errors.As(err, &e) && e.Down()
}
