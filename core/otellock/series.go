package otellock

import (
	"errors"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockkit/lockkit/core"
)

const (
	keyName      = attribute.Key("lockkit.name")
	keyMode      = attribute.Key("lockkit.mode")
	keyOutcome   = attribute.Key("lockkit.outcome")
	keyContended = attribute.Key("lockkit.contended")
	keyRepeated  = attribute.Key("lockkit.repeated")
	keyWaiting   = attribute.Key("lockkit.waiting") // only on spans
	keyError     = attribute.Key("error.type")
)

// outcome is the result of an acquire, a lease or a call.
type outcome uint8

const (
	failed outcome = iota // the result of an acquire or of a call

	acquired // acquired to canceled are results of an acquire
	answered
	busy
	canceled

	released // released to lost are results of a lease
	unconfirmed
	lost

	ran // ran to indeterminate are results of a call
	replayed
	inProgress
	mismatch
	unreplayable
	indeterminate

	outcomes
)

var outcomeNames = [outcomes]string{
	failed: "failed", acquired: "acquired", answered: "answered", busy: "busy", canceled: "canceled",
	released: "released", unconfirmed: "unconfirmed", lost: "lost",
	ran: "ran", replayed: "replayed", inProgress: "in_progress", mismatch: "mismatch",
	unreplayable: "unreplayable", indeterminate: "indeterminate",
}

// failure is the error.type of a failure.
type failure uint8

const (
	noError failure = iota
	unavailable
	leaseLost
	closed
	unsupported
	invalid
	otherError

	failures
)

var failureNames = [failures]string{
	unavailable: "unavailable", leaseLost: "lost", closed: "closed", unsupported: "unsupported", invalid: "invalid", otherError: "_OTHER",
}

func errorType(err error) failure {
	switch {
	case err == nil:
		return noError
	case errors.Is(err, core.ErrUnavailable):
		return unavailable
	case errors.Is(err, core.ErrLost):
		return leaseLost
	case errors.Is(err, core.ErrClosed):
		return closed
	case errors.Is(err, core.ErrUnsupported):
		return unsupported
	case errors.Is(err, core.ErrInvalid):
		return invalid
	}
	return otherError
}

// ended is the result of an acquire.
type ended struct {
	outcome outcome
	why     failure // set if the outcome is failed
}

const modes = core.ModeRun + 1 // 0 stands for an unknown mode

// series has the attribute sets of one name. Each set is created at its first use, and
// stored, because creating a set takes longer than a measurement.
type series struct {
	label  string
	base   []attribute.KeyValue // the constant attributes, and the name
	passes atomic.Int64         // number of leases whose hold was passed on

	acquires [modes][canceled + 1][failures][2]kept[metric.RecordOption]
	holds    [modes][lost + 1]kept[metric.RecordOption]
	calls    [outcomes][2]kept[metric.RecordOption]
	counts   [failures]kept[metric.AddOption]
}

// kept stores the options of measurements with the same attributes.
type kept[O any] struct{ options atomic.Pointer[[]O] }

func (k *kept[O]) keep(o O) []O {
	all := []O{o}
	k.options.Store(&all)
	return all
}

// acquired returns the attributes of an acquire.
func (s *series) acquired(m core.Mode, end ended, contended bool) []metric.RecordOption {
	k := &s.acquires[known(m)][end.outcome][end.why][index(contended)]
	if o := k.options.Load(); o != nil {
		return *o
	}
	return k.keep(metric.WithAttributeSet(attribute.NewSet(s.ofAcquire(m, end, contended)...)))
}

func (s *series) ofAcquire(m core.Mode, end ended, contended bool) []attribute.KeyValue {
	return s.with(end.why, keyMode.String(m.String()), keyOutcome.String(outcomeNames[end.outcome]), keyContended.Bool(contended))
}

// held returns the attributes of a lease.
func (s *series) held(m core.Mode, o outcome) []metric.RecordOption {
	k := &s.holds[known(m)][o]
	if o := k.options.Load(); o != nil {
		return *o
	}
	return k.keep(metric.WithAttributeSet(attribute.NewSet(s.ofHold(m, o)...)))
}

func (s *series) ofHold(m core.Mode, o outcome) []attribute.KeyValue {
	return s.with(noError, keyMode.String(m.String()), keyOutcome.String(outcomeNames[o]))
}

// called returns the attributes of a call.
func (s *series) called(o outcome, repeated bool) []metric.RecordOption {
	k := &s.calls[o][index(repeated)]
	if o := k.options.Load(); o != nil {
		return *o
	}
	return k.keep(metric.WithAttributeSet(attribute.NewSet(
		s.with(noError, keyOutcome.String(outcomeNames[o]), keyRepeated.Bool(repeated))...)))
}

// failed returns the attributes of a counter: the name and, after a failure, error.type.
func (s *series) failed(why failure) []metric.AddOption {
	k := &s.counts[why]
	if o := k.options.Load(); o != nil {
		return *o
	}
	return k.keep(metric.WithAttributeSet(attribute.NewSet(s.with(why)...)))
}

// with returns the attributes of the series and the attributes in more. It adds the
// error type, unless why is noError.
func (s *series) with(why failure, more ...attribute.KeyValue) []attribute.KeyValue {
	all := slices.Concat(s.base, more) // a copy, because creating a set sorts the slice
	if why != noError {
		all = append(all, keyError.String(failureNames[why]))
	}
	return all
}

func known(m core.Mode) core.Mode {
	if m >= modes {
		return 0
	}
	return m
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
