package pipeline

import (
	"context"
	"errors"
)

// Cause returns the cause of ctx as an error that only shows and matches the cause, or
// nil. A caller can use any error as the cause, even a server's reply or the error of a
// dial. Such a cause must not be read as the outcome of a call.
func Cause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return &causeError{cause}
	}
	return nil
}

// causeError has neither Unwrap nor As, because these would expose the type of the
// cause.
type causeError struct{ cause error }

func (c *causeError) Error() string { return c.cause.Error() }

// Is reports whether the cause matches target.
func (c *causeError) Is(target error) bool { return errors.Is(c.cause, target) }
