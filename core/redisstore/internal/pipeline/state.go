package pipeline

import (
	"errors"
	"sync/atomic"
)

// state is how far a call has come, and whether its caller still waits. It is safe
// for concurrent use.
type state struct{ of atomic.Int32 }

const (
	waiting  int32 = iota // nothing has been sent
	batched               // it is in a pipeline that may be written at any moment
	sent                  // something may have reached the server
	left                  // the caller left, nothing has been or will be written
	leftSent              // the caller left after something was sent, or will be
)

var errLeft = errors.New("the caller has gone")

// leave says that the caller leaves.
func (s *state) leave() {
	for {
		from := s.of.Load()
		to := leftSent
		switch from {
		case left, leftSent:
			return
		case waiting:
			to = left
		}
		if s.of.CompareAndSwap(from, to) {
			return
		}
	}
}

// abandoned tells that the caller left before anything was sent.
func (s *state) abandoned() bool { return s.of.Load() == left }

// batch says that the call will be written among others, where it cannot be left
// out any more. It is false if the caller has left.
func (s *state) batch() bool { return s.of.CompareAndSwap(waiting, batched) }

// write says that the call is being written. It is false if the call must not be,
// because the caller has left.
func (s *state) write() bool {
	if s.of.CompareAndSwap(waiting, sent) || s.of.CompareAndSwap(batched, sent) {
		return true
	}
	return s.of.Load() != left
}

// again says that the server has refused the call, or that it came back unsent, so that
// nothing is on its way. It is false if the caller has left.
func (s *state) again() bool {
	return s.of.CompareAndSwap(sent, waiting) || s.of.CompareAndSwap(batched, waiting) || s.of.Load() == waiting
}

// unsent says that the call came back and has not reached the server, so that it can
// go another way. It is false if it may have, or if the caller has left.
func (s *state) unsent() bool {
	return s.of.CompareAndSwap(batched, waiting) || s.of.Load() == waiting
}

// revoke tells that nothing has reached the server, and sees to it that nothing
// will: a hook that gave up on the call may have left it under way. It counts when
// the call has come back, or the caller has left.
func (s *state) revoke() bool {
	return s.of.CompareAndSwap(waiting, left) || s.of.CompareAndSwap(batched, left) || s.abandoned()
}

// outcome returns err, the error of the call, marked if nothing was sent. A call that was
// done was sent, whatever a hook made of that.
func (s *state) outcome(err error) error {
	_, done := errors.AsType[*NoTimeError](err)
	if err != nil && !done && s.revoke() {
		return &unsentError{err}
	}
	return err
}

// unsentError is the error of a call of which the server has nothing.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Sent tells whether a call that ended with err may have reached the server. If it is
// false, the call has not, and never will.
func Sent(err error) bool {
	_, unsent := errors.AsType[*unsentError](err)
	return !unsent
}

// tracked is the argument of a call that go-redis asks for its bytes when it writes
// the call to a connection, and not before: that tells whether the call was sent.
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

// String is the text in logs.
func (t *tracked) String() string { return "script" }
