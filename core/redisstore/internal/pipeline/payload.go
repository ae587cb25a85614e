package pipeline

import (
	"errors"
	"sync/atomic"
)

// payload provides the bytes of a call to the client's writer, one time. There is no
// other access to the bytes. So a call is not sent before the client requests the bytes,
// and cannot be written a second time. payload is an argument of the call, and safe for
// concurrent use. doc.go has a drawing of its states.
type payload struct {
	bytes []byte
	state atomic.Int32
}

const (
	fresh   int32 = iota // the bytes were not requested
	joined               // the bytes were not requested, and the call is in a flight with others
	written              // the bytes were provided
	barred               // the bytes were never provided and never will be
)

// board records that the call is passed to the client, alone or with others. It returns
// false if the caller has left.
func (p *payload) board(alone bool) bool {
	if alone {
		return p.state.Load() == fresh
	}
	return p.state.CompareAndSwap(fresh, joined)
}

// leave records that the caller leaves, and reports whether the call is barred.
func (p *payload) leave() bool {
	return p.state.CompareAndSwap(fresh, barred) || p.state.Load() == barred
}

// end records that the client has returned, and reports whether the call is barred. A
// call that a hook gave up on may still be in flight, and must not be sent later.
func (p *payload) end() bool { return p.leave() || p.state.CompareAndSwap(joined, barred) }

// unsentError is the error of a call that never reaches the server.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// Sent reports whether a call that failed with err may have reached the server. If Sent
// returns false, the call has not reached it and never will.
func Sent(err error) bool {
	return err == nil || !errors.As(err, new(*unsentError))
}

var errSpent = errors.New("the call was written, or its caller has left")

// MarshalBinary returns the bytes to write, or an error that ends the call.
func (p *payload) MarshalBinary() ([]byte, error) {
	if !p.state.CompareAndSwap(fresh, written) && !p.state.CompareAndSwap(joined, written) {
		return nil, errSpent
	}
	return p.bytes, nil
}

// String returns the text that logs show for the bytes.
func (p *payload) String() string { return "script" }
