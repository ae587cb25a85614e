package keystate

import (
	"bytes"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// answers reports whether a finished record answers w, so that w is not admitted.
func (s *State) answers(w Waiter) bool { return w.Run && s.Record != nil && s.Record.Done }

// begun reports whether lease has begun the last run, and no record was saved since.
func (s *State) begun(lease string) bool { return s.Record != nil && s.Record.Beginner == lease }

// begin starts a run under the admitted claim c, if c has a record and its lease has
// not begun the last run already.
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

// undo reverts the last run, if lease has begun that run and no record was saved since.
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

// save stores r. The next operation removes a record with a Retain of 0.
func (s *State) save(now time.Time, r store.Record) {
	s.Record = &Record{Value: bytes.Clone(r.Value), Attempt: r.Attempt, Done: r.Done, Until: now.Add(r.Retain)}
}

// saveFor stores the record of c for its lease, which is then the record's Saver.
func (s *State) saveFor(now time.Time, c store.Claim) {
	s.save(now, *c.Record)
	s.Record.Saver = c.Lease
}

// saved reports whether c's lease has saved the record of c, and no run has begun
// since. A release of c is then a duplicate, for example after a lost reply.
func (s *State) saved(c store.Claim) bool {
	r := s.Record
	return c.Record != nil && r != nil && r.Saver == c.Lease &&
		r.Done == c.Record.Done && r.Attempt == c.Record.Attempt && bytes.Equal(r.Value, c.Record.Value)
}

// HasSavedOther reports whether the stored record was saved by c's lease and differs
// from the record that c would save.
func (s *State) HasSavedOther(now time.Time, c store.Claim) bool {
	r := s.Record
	return c.Record != nil && r != nil && r.Saver == c.Lease && r.Until.After(now) && !s.saved(c)
}

// recorded returns a copy of the stored record if c has a record, and otherwise nil.
func (s *State) recorded(now time.Time, c store.Claim) *store.Record {
	r := s.Record
	if c.Record == nil || r == nil {
		return nil
	}
	return &store.Record{Value: bytes.Clone(r.Value), Attempt: r.Attempt, Done: r.Done, Retain: r.Until.Sub(now)}
}
