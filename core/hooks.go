package core

import "github.com/lockkit/lockkit/core/internal/hooks"

func init() {
	hooks.Core = hooks.Locker[*Locker, Event, AcquireOption]{
		Check:    (*Locker).check,
		CheckRun: (*Locker).checkRun,
		Limits:   (*Locker).limits,
		FailOpen: (*Locker).failOpen,
		Observe:  (*Locker).observe,
		OfHold:   Event.ofHold,
		Report:   report,
	}
}
