package memstore

import (
	"bytes"
	"time"

	"github.com/lockkit/lockkit/core"
)

// record is an answer that is kept.
type record struct {
	core.Record
	until time.Time
	saver string // the lease that saved it, if no run has begun since
	// The lease that began the last run, if nothing was saved since and it was
	// not undone, and whether there was no record then.
	beginner string
	fresh    bool
	before   *record // what that run found, if it is remembered; one step back is
}

// answers says that c need not be admitted, because its answer is recorded.
func (e *entry) answers(c core.Claim) bool {
	return c.Record != nil && e.record != nil && e.record.Done
}

// begin starts a run under an admitted claim, if it asks for one and has not
// begun it already.
func (e *entry) begin(c core.Claim) {
	if c.Record == nil || e.record != nil && e.record.beginner == c.Lease {
		return
	}
	run, before := core.Record{Value: c.Record.Value, Attempt: 1, Retain: c.Record.Retain}, e.record
	if before != nil {
		run.Value, run.Attempt = before.Value, before.Attempt+1
		before.before = nil
	}
	e.save(run)
	e.record.beginner, e.record.fresh, e.record.before = c.Lease, before == nil, before
}

// undo takes back the last run, if lease has begun it and not ended it.
func (e *entry) undo(lease string) {
	r := e.record
	switch {
	case r == nil || r.beginner != lease:
	case r.fresh, r.before != nil && !r.before.until.After(e.now):
		e.record = nil
	case r.before != nil:
		e.record = r.before
	default:
		r.Attempt--
		r.beginner = ""
	}
}

// save keeps r. A record that is kept for no time is gone with the next step.
func (e *entry) save(r core.Record) {
	r.Value = bytes.Clone(r.Value)
	e.record = &record{Record: r, until: e.now.Add(r.Retain)}
}

// saveFor keeps the record of a release.
func (e *entry) saveFor(c core.Claim) {
	e.save(*c.Record)
	e.record.saver = c.Lease
}

// saved says that c's lease has saved what c would save, and that no run has
// begun since: the reply to an earlier release was lost.
func (e *entry) saved(c core.Claim) bool {
	r := e.record
	return c.Record != nil && r != nil && r.saver == c.Lease &&
		r.Done == c.Record.Done && r.Attempt == c.Record.Attempt && bytes.Equal(r.Value, c.Record.Value)
}

// recorded returns a copy of the record for a claim that asked with one.
func (e *entry) recorded(c core.Claim) *core.Record {
	if c.Record == nil || e.record == nil {
		return nil
	}
	r := e.record.Record
	r.Value, r.Retain = bytes.Clone(r.Value), e.record.until.Sub(e.now)
	return &r
}
