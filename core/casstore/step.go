package casstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/keystate"
	"github.com/lockkit/lockkit/core/store"
)

// probing is a key that no lock has.
const probing = "{probe}"

var (
	errNoAnswer = errors.New("no answer within the time of a call")
	// errUnsure is returned by a Release whose Save may have been sent twice. The
	// Release had found its hold or queue entry, and the Save did not succeed. A later
	// Load does not find the entry, although it cannot have expired.
	errUnsure = errors.New("the hold is gone, by this call or by another one")
)

// move is an operation on the state of one key.
type move struct {
	key   string
	want  Want
	value []byte // for a record that is saved
	// sent is set if a write of the same operation has returned false in a place that
	// is not Pooled. Such a place may send a write twice, so the first copy may have
	// taken effect. wrote is the write's version. The next Load clears sent and wrote.
	sent  bool
	wrote int64
	// apply changes the state. It is called after each Load, so it can be called again.
	apply func(s *keystate.State, e Entry) result
}

// result is the result of apply. It determines what step does next.
type result struct {
	wake []string
	// save is set if the result counts only after the place was written.
	save bool
	// current is set if the result counts only for the newest entry.
	current bool
}

// step loads the entry of m, applies m, and saves the result if it is new or must be
// saved. If another client has changed the entry in between, step starts again, until
// ctx is done.
func (s *Store) step(ctx context.Context, op string, m move) error {
	if err := s.turns.Lock(ctx, m.key); err != nil {
		return s.undecided(op, m.sent, err)
	}
	defer s.turns.Unlock(m.key)
	var next func() (time.Duration, bool)
	again := func() bool { // immediately the first time, then after a pause
		if next == nil {
			next = pauses.Delays()
			return true
		}
		d, _ := next()
		return clock.Sleep(ctx, d) == nil
	}
	for {
		old, err := do(ctx, s, func(ctx context.Context) (Entry, error) { return s.place.Load(ctx, m.key, m.want) })
		if errors.Is(err, ErrConflict) && again() {
			continue
		}
		if err != nil {
			return s.undecided(op, m.sent, err)
		}
		if m.wrote != 0 && old.Version == m.wrote {
			return nil // the write was sent twice, and its first copy has won
		}
		m.sent, m.wrote = false, 0
		at := old
		at.Now = nowOf(old)
		state, err := s.read(at, m.want)
		if err != nil {
			return fmt.Errorf("%s: %s: %w: %w", s.name, op, store.ErrUnsupported, err)
		}
		before, sum := encode(state, at.Now, s.usual != nil), sumOf(state)
		r := m.apply(state, at)
		e := encode(state, at.Now, s.usual != nil)
		if !r.save && same(before, e) && !wasSetBack(at) {
			if !r.current || m.want.Current {
				return nil
			}
			m.want.Current = true // the entry may come from a replica
			continue
		}
		e.Version, e.Wake = version(), r.wake
		if kept := sumOf(state); kept != "" {
			if e.KeepValue = kept == sum; !e.KeepValue {
				e.Value = m.value
			}
		}
		won, err := do(ctx, s, func(ctx context.Context) (bool, error) { return s.place.Save(ctx, m.key, old, e) })
		conflict := errors.Is(err, ErrConflict)
		switch {
		case conflict:
		case err != nil:
			return s.unwritten(op, err)
		case won:
			return nil
		default:
			m.sent, m.wrote = s.pooled == nil, e.Version
		}
		m.want.Current = true
		if !again() {
			cause := context.Cause(ctx)
			if conflict {
				cause = fmt.Errorf("%w: %w", cause, err)
			}
			return s.undecided(op, m.sent, cause)
		}
	}
}

// read returns the state in e. It fails if e is damaged or has another version of the
// text. It checks the value only if w.Value is set.
func (s *Store) read(e Entry, w Want) (*keystate.State, error) {
	state, err := decode(e)
	if err != nil {
		return nil, err
	}
	if sum := sumOf(state); w.Value && sum != "" && sum != string(digest(e.Value)) {
		return nil, errDamaged
	}
	return state, nil
}

// sumOf returns the digest of the value in s.
func sumOf(s *keystate.State) string {
	if s.Record == nil {
		return ""
	}
	return string(s.Record.Value)
}

// endedError is returned if ctx was done before a call was sent or answered, or if
// there was no connection for the call.
type endedError struct {
	cause error
	sent  bool
}

func (e *endedError) Error() string { return e.cause.Error() }

func (e *endedError) Unwrap() error { return e.cause }

// do calls the place, and returns early if ctx is done. If the place returns an error,
// do also returns the place's value.
func do[T any](ctx context.Context, s *Store, call func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, &endedError{context.Cause(ctx), false}
	}
	begun := s.gate.Begin()
	connected, release, err := s.connect(ctx)
	if err != nil {
		if why := s.gate.Doubt(ctx, begun); why != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, brief.Error(why))
		}
		return none, &endedError{err, false}
	}
	going, stop := context.WithTimeoutCause(context.WithoutCancel(connected), callLimit, errNoAnswer)
	v, left, err := calls.Detached(ctx, func() (T, error) {
		defer stop()
		defer release()
		v, err := call(going)
		if err == nil || errors.Is(err, ErrConflict) {
			s.gate.Answered()
		} else {
			_ = s.gate.Doubt(context.Background(), begun)
		}
		return v, err
	})
	if left {
		return none, &endedError{err, true}
	}
	return v, err
}

// connect waits for a connection of a place that is Pooled.
func (s *Store) connect(ctx context.Context) (connected context.Context, release func(), err error) {
	if s.pooled == nil {
		return ctx, func() {}, nil
	}
	connected, release, err = s.pooled.Connect(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return connected, release, err
}

func (s *Store) probe(ctx context.Context) error {
	_, err := s.place.Load(ctx, probing, Want{})
	if errors.Is(err, ErrConflict) { // an answer too
		return nil
	}
	return err
}

// bounded returns the context for a whole operation, which is done after callLimit.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
}

// unchanged returns the error of an operation that has certainly changed nothing.
func (s *Store) unchanged(op string, err error) error {
	return fmt.Errorf("%s: %s: %w: %w", s.name, op, store.ErrUnavailable, claims.Classless(brief.Error(untitled{err})))
}

// untitled is an error whose text omits the text of store.ErrUnavailable and the kit's
// name. The method unchanged puts them before the text.
type untitled struct{ err error }

func (u untitled) Error() string {
	return untitling.Replace(u.err.Error())
}

func (u untitled) Unwrap() error { return u.err }

var untitling = strings.NewReplacer(store.ErrUnavailable.Error()+": ", "", "lockkit: ", "")

// unknown returns the error of an operation that may have taken effect.
func (s *Store) unknown(op string, err error) error {
	return fmt.Errorf("%s: %s: outcome unknown: %w", s.name, op, claims.Classless(brief.Error(err)))
}

// unwritten returns the error of an operation whose write failed with err.
func (s *Store) unwritten(op string, err error) error {
	var ended *endedError
	ok := errors.As(err, &ended)
	if ok && !ended.sent || !ok && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, ErrConflict)) {
		return s.unchanged(op, err)
	}
	return s.unknown(op, err)
}

// undecided returns the error of an operation that could not continue. The outcome is
// unknown if a write was sent that may have taken effect. Otherwise nothing has
// changed.
func (s *Store) undecided(op string, sent bool, err error) error {
	if sent {
		return s.unknown(op, err)
	}
	return s.unchanged(op, err)
}

func (s *Store) unsupported(op string) error {
	return fmt.Errorf("%s: %s: not supported by the place: %w", s.name, op, store.ErrUnsupported)
}
