package pipeline

import (
	"errors"

	"github.com/redis/go-redis/v9"
)

// clock is a TIME behind the calls of a pipeline, whose reply is for those that are Timed.
type clock struct {
	redis.TimeCmd
	calls []*Call
}

var _ redis.Cmder = (*clock)(nil)

// NoRetry keeps the client from sending the TIME again, after later calls.
func (k *clock) NoRetry() bool { return true }

// SetErr notes the time for the calls, as Call.SetErr does the reply.
func (k *clock) SetErr(err error) {
	k.TimeCmd.SetErr(err)
	us := int64(0)
	if err == nil {
		us = max(0, k.Val().UnixMicro())
	}
	for _, c := range k.calls {
		c.noteTime(us, err)
	}
}

// Clone returns a copy for a hook, which is no clock.
func (k *clock) Clone() redis.Cmder { return singleTime{k.TimeCmd.Clone().(*redis.TimeCmd)} }

type singleTime struct{ *redis.TimeCmd }

func (singleTime) NoRetry() bool { return true }

// NoTimeError is the error of a Timed call that was done, where the server's time is not
// known.
type NoTimeError struct{ cause error }

func (e *NoTimeError) Error() string {
	return "done, but the server's time is not known: " + e.cause.Error()
}

// Unwrap returns the cause, unless that is a reply to the TIME and not to the call.
func (e *NoTimeError) Unwrap() error {
	if e.Refused() {
		return nil
	}
	return e.cause
}

// Refused reports whether the server refused to tell its time.
func (e *NoTimeError) Refused() bool {
	_, reply := errors.AsType[redis.Error](e.cause)
	return reply
}
