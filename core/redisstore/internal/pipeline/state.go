package pipeline

import (
	"errors"
	"sync/atomic"
)

// state is whether a call was sent, and whether its caller waits for it.
type state struct{ of atomic.Int32 }

const (
	waiting  int32 = iota // nothing has been sent
	batched               // it is in a pipeline that may be written at any moment
	sent                  // something may have reached the server
	left                  // the caller left, nothing has been or will be written
	leftSent              // the caller left after something was sent, or will be
)

// errLeft ends a call that its caller left before it was written.
var errLeft = errors.New("the caller has gone")

// leave notes that the caller does not wait any more. What was not written then never is.
func (s *state) leave() {
	if !s.of.CompareAndSwap(waiting, left) && !s.abandoned() {
		s.of.Store(leftSent)
	}
}

// abandoned reports whether the caller left before anything was sent.
func (s *state) abandoned() bool { return s.of.Load() == left }

// batch notes that the call will be written among others, where it cannot be left
// out any more. It returns false if the caller has left.
func (s *state) batch() bool { return s.of.CompareAndSwap(waiting, batched) }

// write notes that the call is being written. It returns false if the call must not be,
// because the caller has left.
func (s *state) write() bool {
	if s.of.CompareAndSwap(waiting, sent) || s.of.CompareAndSwap(batched, sent) {
		return true
	}
	return !s.abandoned()
}

// outcome returns err, the error of the call, marked if nothing was sent, and sees to it that
// nothing will be: a hook that gave up on the call may have left it under way. A call that was
// done was sent, whatever a hook made of that.
func (s *state) outcome(err error) error {
	_, done := errors.AsType[*NoTimeError](err)
	if err == nil || done {
		return err
	}
	if s.of.CompareAndSwap(waiting, left) || s.of.CompareAndSwap(batched, left) || s.abandoned() {
		return &unsentError{err}
	}
	return err
}

// unsentError is the error of a call of which the server has nothing.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Sent reports whether a call that ended with err may have reached the server. If not, it
// never will.
func Sent(err error) bool {
	_, unsent := errors.AsType[*unsentError](err)
	return !unsent
}

// tracked is an argument of a call that the client asks for its bytes before it can write
// the call. So what it has not asked for was not sent. When it asks does not matter: a call
// that it asks for early counts as sent from then on.
type tracked struct {
	state *state
	bytes []byte
}

// MarshalBinary returns the bytes to write, or an error that ends the call.
func (t *tracked) MarshalBinary() ([]byte, error) {
	if !t.state.write() {
		return nil, errLeft
	}
	return t.bytes, nil
}

// String returns the text in logs.
func (t *tracked) String() string { return "script" }
