package keystate

import (
	"bytes"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// answers reports whether w need not be admitted, because its answer is recorded.
func (s *State) answers(w Waiter) bool { return w.Run && s.Record != nil && s.Record.Done }

// begun reports whether lease has begun the last run, and nothing was saved since.
func (s *State) begun(lease string) bool { return s.Record != nil && s.Record.Beginner == lease }

// begin starts a run under an admitted claim, if it asks for one and has not begun it
// already.
func (s *State) begin(now time.Time, c store.Claim) {
	if c.Record == nil || s.begun(c.Lease) {
		return
	}
	run, before := store.Record{Value: c.Record.Value, Attempt: 1, Retain: c.Record.Retain}, s.Record
	if before != nil {
		run.Value, run.Attempt = before.Value, before.Attempt+1
		before.Before = nil
	}
	s.save(now, run)
	s.Record.Beginner, s.Record.Fresh, s.Record.Before = c.Lease, before == nil, before
}

// undo reverts the last run, if lease has begun it and not saved its record.
func (s *State) undo(now time.Time, lease string) {
	r := s.Record
	switch {
	case !s.begun(lease):
	case r.Fresh, r.Before != nil && !r.Before.Until.After(now):
		s.Record = nil
	case r.Before != nil:
		s.Record = r.Before
	default:
		r.Attempt--
		r.Beginner = ""
	}
}

// save stores r. A record with a Retain of 0 is gone with the next operation.
func (s *State) save(now time.Time, r store.Record) {
	s.Record = &Record{Value: bytes.Clone(r.Value), Attempt: r.Attempt, Done: r.Done, Until: now.Add(r.Retain)}
}

// saveFor stores the record of a release.
func (s *State) saveFor(now time.Time, c store.Claim) {
	s.save(now, *c.Record)
	s.Record.Saver = c.Lease
}

// saved reports whether c's lease has saved the record of c, and no run has begun since:
// the reply to an earlier release was lost.
func (s *State) saved(c store.Claim) bool {
	r := s.Record
	return c.Record != nil && r != nil && r.Saver == c.Lease &&
		r.Done == c.Record.Done && r.Attempt == c.Record.Attempt && bytes.Equal(r.Value, c.Record.Value)
}

// HasSavedOther reports whether c's lease has saved another stored record than the one
// that c would save, and no run has begun since.
func (s *State) HasSavedOther(now time.Time, c store.Claim) bool {
	r := s.Record
	return c.Record != nil && r != nil && r.Saver == c.Lease && r.Until.After(now) && !s.saved(c)
}

// recorded returns a copy of the record for a claim that asked with one.
func (s *State) recorded(now time.Time, c store.Claim) *store.Record {
	r := s.Record
	if c.Record == nil || r == nil {
		return nil
	}
	return &store.Record{Value: bytes.Clone(r.Value), Attempt: r.Attempt, Done: r.Done, Retain: r.Until.Sub(now)}
}
