package pipeline

import (
	"errors"
	"sync/atomic"
)

// once hands out the bytes of a call to its writer, one time. The bytes are to
// be had nowhere else. So a call whose bytes nobody asked for was not sent, whenever the
// client asks, and a call that was written cannot be written again. It is safe for
// concurrent use. It is an argument of the call.
type once struct {
	bytes []byte
	state atomic.Int32
}

const (
	fresh   int32 = iota // nobody asked for the bytes
	joined               // the same, among others: to refuse them now would fail those
	written              // they were handed out
	revoked              // they never were and never will be
)

// board says that the call goes to the client now, alone or among others. It is false if
// the caller has left.
func (o *once) board(alone bool) bool {
	if alone {
		return o.state.Load() == fresh
	}
	return o.state.CompareAndSwap(fresh, joined)
}

// leave says that the caller leaves, and reports whether the call is revoked.
func (o *once) leave() bool {
	return o.state.CompareAndSwap(fresh, revoked) || o.state.Load() == revoked
}

// end says that the client has returned, and reports whether the call is revoked. A hook
// that gave up on the call may have left it under way.
func (o *once) end() bool { return o.leave() || o.state.CompareAndSwap(joined, revoked) }

// unsentError is the error of a call of which the server has nothing.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Sent reports whether a call that ended with err may have reached the server. If it is
// false, the call has not, and never will.
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

// String returns the text in logs.
func (o *once) String() string { return "script" }
