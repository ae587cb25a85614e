// Package hooks holds the functions of core and once that are for adapters, not for
// users. Packages core and once set them at program start, and package adapter exposes
// them.
package hooks

import (
	"context"
	"time"
)

// Core is a Locker[*core.Locker, core.Event, core.AcquireOption].
var Core any

// Locker holds functions on a Locker. Its type parameters are types of package core,
// which this package cannot import. Package adapter documents the functions.
type Locker[L, Event, Option any] struct {
	Check    func(l L, opts ...Option) (wait time.Duration, err error)
	CheckRun func(l L, opts ...Option) (wait time.Duration, err error)
	Limits   func(l L, opts ...Option) (ttl, maxHold time.Duration, err error)
	FailOpen func(l L, ctx context.Context, name string, err error) (context.Context, bool)
	Observe  func(l L, ctx context.Context, e Event)
	OfHold   func(e Event, id string) Event
	Report   func(e *Event) Option
}

// Once is a Runs[*once.Once, *core.Locker, core.AcquireOption].
var Once any

// Runs holds functions of package once.
type Runs[O, L, Option any] struct {
	Terms        func(o O) (L, []Option)
	WithLabel    func(o O, label string) O
	AttemptAsked func(ctx context.Context) bool
	IsFinal      func(ctx context.Context) bool
	Committed    func(ctx context.Context) bool
	Withdrawn    func(err error) (error, bool)
}
