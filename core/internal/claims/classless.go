package claims

import (
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// Classless returns err without what it says of the outcome of a call: the errors of package
// store. It matches whatever else err matches. A caller can end its context with any cause,
// also with one of these errors, and that is no answer of a store.
func Classless(err error) error {
	for _, class := range classes {
		if errors.Is(err, class) {
			return &classless{err}
		}
	}
	return err
}

var classes = []error{store.ErrBusy, store.ErrLost, store.ErrUnavailable, store.ErrUnsupported, store.ErrInvalid}

// classless has no Unwrap, which would show the class.
type classless struct{ err error }

func (c *classless) Error() string { return c.err.Error() }

// Is has errors.Is match what c.err matches, except a class.
func (c *classless) Is(target error) bool {
	for _, class := range classes {
		if target == class {
			return false
		}
	}
	return errors.Is(c.err, target)
}

// As has errors.As find what is in c.err, except what says that the key is busy.
func (c *classless) As(target any) bool {
	if _, busy := target.(**store.BusyError); busy {
		return false
	}
	return errors.As(c.err, target)
}
