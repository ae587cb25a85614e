// Package hooks has the functions of core and once that adapters call and users do not.
// Packages core and once set them when the program starts, and package adapter shows them.
package hooks

import (
	"context"
	"time"
)

// Core is a Locker of *core.Locker, core.Event and core.AcquireOption.
var Core any

// Locker has the functions of a Locker, with the types of package core, which this package
// cannot import. Package adapter documents them.
type Locker[L, Event, Option any] struct {
	Check    func(l L, opts ...Option) (wait time.Duration, err error)
	CheckRun func(l L, opts ...Option) (wait time.Duration, err error)
	Limits   func(l L, opts ...Option) (ttl, maxHold time.Duration, err error)
	FailOpen func(l L, ctx context.Context, name string, err error) (context.Context, bool)
	Observe  func(l L, ctx context.Context, e Event)
	OfHold   func(e Event, id string) Event
	Report   func(e *Event) Option
}

// Once is a Runs of *once.Once, *core.Locker and core.AcquireOption.
var Once any

// Runs has the functions of package once.
type Runs[O, L, Option any] struct {
	Terms        func(o O) (L, []Option)
	WithLabel    func(o O, label string) O
	AttemptAsked func(ctx context.Context) bool
	IsFinal      func(ctx context.Context) bool
	Committed    func(ctx context.Context) bool
	Withdrawn    func(err error) (error, bool)
}
