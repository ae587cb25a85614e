package once

import (
	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/hooks"
)

// engine has functions of package core that are not exported. Package adapter documents
// them.
var engine = hooks.Core.(hooks.Locker[*core.Locker, core.Event, core.AcquireOption])

func init() {
	hooks.Once = hooks.Runs[*Once, *core.Locker, core.AcquireOption]{
		Terms:        (*Once).terms,
		WithLabel:    (*Once).withLabel,
		AttemptAsked: attemptAsked,
		IsFinal:      stillFinal,
		Committed:    committed,
		Withdrawn:    unmarked,
	}
}
