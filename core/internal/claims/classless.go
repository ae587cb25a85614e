package claims

import (
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// Classless returns an error with err's text that matches no class. Classes are the
// errors of package store that describe the outcome of a call. The result matches
// everything else that err matches. A caller can cancel its context with any cause,
// even with a class. Such a cause is not a store's answer.
func Classless(err error) error {
	for _, class := range classes {
		if errors.Is(err, class) {
			return &classless{err}
		}
	}
	return err
}

var classes = []error{store.ErrBusy, store.ErrLost, store.ErrUnavailable, store.ErrUnsupported, store.ErrInvalid, store.ErrSaved}

// classless has no Unwrap, because Unwrap would expose the class.
type classless struct{ err error }

func (c *classless) Error() string { return c.err.Error() }

// Is reports whether c.err matches target, unless target is a class.
func (c *classless) Is(target error) bool {
	for _, class := range classes {
		if target == class {
			return false
		}
	}
	return errors.Is(c.err, target)
}

// As finds target in c.err, except a *store.BusyError.
func (c *classless) As(target any) bool {
	if _, busy := target.(**store.BusyError); busy {
		return false
	}
	return errors.As(c.err, target)
}
