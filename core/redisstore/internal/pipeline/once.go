package pipeline

import (
	"errors"
	"sync/atomic"
)

// once provides the bytes of a call to the client's writer, one time. There is no other
// access to the bytes. So a call is not sent before the client requests the bytes, and
// cannot be written a second time. once is an argument of the call, and safe for
// concurrent use.
type once struct {
	bytes []byte
	state atomic.Int32
}

const (
	fresh   int32 = iota // the bytes were not requested
	joined               // the bytes were not requested, and the call is in a flight with others
	written              // the bytes were provided
	revoked              // the bytes were never provided and never will be
)

// board records that the call is passed to the client, alone or with others. It returns
// false if the caller has left.
func (o *once) board(alone bool) bool {
	if alone {
		return o.state.Load() == fresh
	}
	return o.state.CompareAndSwap(fresh, joined)
}

// leave records that the caller leaves, and reports whether the call is revoked.
func (o *once) leave() bool {
	return o.state.CompareAndSwap(fresh, revoked) || o.state.Load() == revoked
}

// end records that the client has returned, and reports whether the call is revoked. A
// hook that gave up on the call may have left it in flight.
func (o *once) end() bool { return o.leave() || o.state.CompareAndSwap(joined, revoked) }

// unsentError is the error of a call that never reaches the server.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Sent reports whether a call that failed with err may have reached the server. If Sent
// returns false, the call has not reached it and never will.
func Sent(err error) bool {
	return err == nil || !errors.As(err, new(*unsentError))
}

var errOnce = errors.New("the call was written, or its caller has left")

// MarshalBinary returns the bytes to write, or an error that ends the call.
func (o *once) MarshalBinary() ([]byte, error) {
	if !o.state.CompareAndSwap(fresh, written) && !o.state.CompareAndSwap(joined, written) {
		return nil, errOnce
	}
	return o.bytes, nil
}

// String returns the text that logs show for the bytes.
func (o *once) String() string { return "script" }
