package keystate

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Acquire admits or refuses c at the time now, as store.Store.Acquire does. It also
// returns the leases to wake.
func (s *State) Acquire(now time.Time, c store.Claim) (g store.Grant, wake []string, err error) {
	s.expire(now)
	if g, err = s.acquire(now, c); err == nil {
		wake = s.wake()
	}
	return g, wake, err
}

func (s *State) acquire(now time.Time, c store.Claim) (store.Grant, error) {
	w := waiter(now, c)
	if s.answers(w) {
		return store.Grant{Owner: c.Owner, Record: s.recorded(now, c)}, nil
	}
	if i := s.find(c.Lease); i >= 0 {
		h := &s.Holds[i]
		h.Until = later(h.Until, now.Add(c.TTL))
		if s.Record == nil {
			s.begin(now, c)
		}
		return store.Grant{Owner: h.Owner, Token: s.fence(now, c, true), Record: s.recorded(now, c)}, nil
	}
	if s.refuses(c.Lease) {
		return store.Grant{}, store.ErrLost
	}
	owner, heaviest := s.join(w)
	if heaviest > 0 && c.Weight > heaviest {
		return store.Grant{}, store.ErrInvalid
	}
	if free, fits := s.room(w, true); !fits {
		busy := &store.BusyError{Key: c.Key, RetryAfter: free.Sub(now)}
		if c.Wait {
			s.enter(w)
			busy.Waiting = len(s.Waiters)
		}
		return store.Grant{}, busy
	}
	s.leave(c.Lease)
	s.begin(now, c)
	token := s.fence(now, c, heaviest == store.All)
	s.Holds = append(s.Holds, Hold{c.Lease, owner, c.Weight, now, now.Add(c.TTL)})
	return store.Grant{Owner: owner, Token: token, Record: s.recorded(now, c)}, nil
}

// Extend extends the hold of c as store.Store.Extend does for one claim.
func (s *State) Extend(now time.Time, c store.Claim) error {
	s.expire(now)
	i := s.find(c.Lease)
	if i < 0 {
		return store.ErrLost
	}
	s.Holds[i].Until = later(s.Holds[i].Until, now.Add(c.TTL))
	return nil
}

// Release ends the hold of c as store.Store.Release does. It returns the leases to
// wake, even if err is not nil.
func (s *State) Release(now time.Time, c store.Claim) (wake []string, err error) {
	s.expire(now)
	err = s.release(now, c)
	return s.wake(), err
}

func (s *State) release(now time.Time, c store.Claim) error {
	if c.Undo && c.Record == nil {
		s.undo(now, c.Lease)
	}
	if i := s.find(c.Lease); i >= 0 {
		s.end(i, now, c.Keep)
		if c.Record != nil {
			s.saveFor(now, c)
		}
		return nil
	}
	if s.saved(c) {
		return nil
	}
	waited := s.leave(c.Lease)
	if c.Record != nil && s.begun(c.Lease) {
		s.saveFor(now, c)
		return nil
	}
	// A waiting claim gets a tombstone too, because a repeated Acquire of the claim may
	// still be in flight.
	s.bury(c.Lease, now.Add(c.TTL))
	if waited && c.Record == nil {
		return nil
	}
	return store.ErrLost
}

// Commit ends the hold of c and saves its record, if c's lease has begun the last run
// and nothing was saved since. It returns the leases to wake. It fails with
// store.ErrSaved if the lease itself was the last to save a record, and no run has
// begun since. It fails with store.ErrLost if the lease has not begun the last run, or
// another lease has saved since.
func (s *State) Commit(now time.Time, c store.Claim) (wake []string, err error) {
	s.expire(now)
	switch {
	case s.Record != nil && s.Record.Saver == c.Lease:
		return nil, store.ErrSaved
	case !s.begun(c.Lease):
		return nil, store.ErrLost
	}
	if i := s.find(c.Lease); i >= 0 {
		s.end(i, now, 0)
	}
	s.saveFor(now, c)
	return s.wake(), nil
}

// Revoke ends the hold with this ID as store.Inspector.Revoke does. It returns the
// leases to wake, and reports whether there was such a hold.
func (s *State) Revoke(now time.Time, id string, keep time.Duration) (wake []string, found bool) {
	s.expire(now)
	for i, h := range s.Holds {
		if h.Owner == "" || store.HoldID(h.Lease) != id {
			continue
		}
		if keep > 0 {
			keep = max(keep, h.Until.Sub(now))
		}
		s.end(i, now, keep)
		return s.wake(), true
	}
	return nil, false
}

// Look returns the state of the key in the form that operators may see.
func (s *State) Look(now time.Time, key string) store.State {
	s.expire(now)
	view := store.State{Key: key}
	for _, h := range s.Holds {
		view.Holds = append(view.Holds, h.show(now))
	}
	for _, w := range s.Waiters {
		// The method show omits the ID of a hold without an owner. A waiter always has
		// an owner, so its ID is shown.
		shown := Hold{w.Lease, w.Owner, w.Weight, w.Since, w.Until}.show(now)
		shown.Fair = w.Fair
		view.Waiters = append(view.Waiters, shown)
	}
	if r := s.Record; r != nil {
		view.Run = &store.Run{Attempt: r.Attempt, Done: r.Done, Left: r.Until.Sub(now)}
	}
	return view
}

func (h Hold) show(now time.Time) store.Hold {
	shown := store.Hold{Weight: h.Weight, Age: now.Sub(h.Since), Left: h.Until.Sub(now)}
	if h.Owner != "" {
		shown.ID, shown.Process = store.HoldID(h.Lease), store.ProcessOf(h.Lease)
	}
	return shown
}
