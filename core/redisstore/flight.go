package redisstore

import (
	"errors"
	"sync/atomic"
)

// A flight is what one call has on its way to the server.
type flight struct{ state atomic.Int32 }

const (
	waiting  int32 = iota // nothing is on its way
	boarded               // it is in a pipeline that may be written at any moment
	sent                  // something may have reached the server
	left                  // the caller went, nothing has been or will be written
	leftSent              // the caller went after something was sent, or would be
)

var errLeft = errors.New("the caller has gone")

// leave says that the caller goes.
func (f *flight) leave() {
	for {
		s := f.state.Load()
		to := leftSent
		switch s {
		case left, leftSent:
			return
		case waiting:
			to = left
		}
		if f.state.CompareAndSwap(s, to) {
			return
		}
	}
}

// gone tells that the caller went before anything was sent.
func (f *flight) gone() bool { return f.state.Load() == left }

// board says that the call will be written among others, where it cannot be
// left out any more. It is false if the caller has gone.
func (f *flight) board() bool { return f.state.CompareAndSwap(waiting, boarded) }

// write says that the call is being written, and is false if it must not be,
// because the caller has gone.
func (f *flight) write() bool {
	if f.state.CompareAndSwap(waiting, sent) || f.state.CompareAndSwap(boarded, sent) {
		return true
	}
	return f.state.Load() != left
}

// again says that what was sent has been refused by the server, or has come
// back unsent, so that nothing is on its way. It is false if the caller has gone.
func (f *flight) again() bool {
	return f.state.CompareAndSwap(sent, waiting) || f.state.CompareAndSwap(boarded, waiting) || f.state.Load() == waiting
}

// recall tells that nothing has reached the server, and sees to it that nothing
// will: a hook that gave up on the call may have left it under way. It counts when
// the call has come back, or the caller has left it.
func (f *flight) recall() bool {
	return f.state.CompareAndSwap(waiting, left) || f.state.CompareAndSwap(boarded, left) || f.gone()
}
