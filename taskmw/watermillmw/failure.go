package watermillmw

import (
	"errors"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
)

// failure is the error of a message that did not run. PoisonQueue stores its text with
// the message. So the text contains no key, and no text of a KeyFunc.
type failure struct {
	text   string
	causes []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.causes }

// notRun returns err as a failure, which distinguishes it from an error of the handler.
func notRun(err error) error { return &failure{err.Error(), []error{err}} }

// keyFailure returns the failure of a message whose key could not be found.
func (g *config) keyFailure(err error) error {
	text := "watermillmw " + g.name + ": the key could not be found"
	var own *keys.Error
	if errors.As(err, &own) && errors.Is(err, core.ErrInvalid) {
		text = "watermillmw " + g.name + ": " + own.Detail()
	}
	return &failure{text, []error{err}}
}
