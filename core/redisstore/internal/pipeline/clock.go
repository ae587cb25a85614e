package pipeline

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// clock is the TIME behind the calls of a batch, of which some are Timed.
type clock struct {
	redis.TimeCmd
	calls []*Call // its own slice: a hook may leave it under way, when the worker has other calls
}

var _ redis.Cmder = (*clock)(nil)

// timeWords are shared, which saves an allocation for each.
var timeWords = []any{"time"}

// ready makes k, which is new or whose last batch the client is done with, the TIME behind
// calls.
func (k *clock) ready(ctx context.Context, calls []*Call) *clock {
	k.TimeCmd, k.calls = *redis.NewTimeCmd(ctx, timeWords...), append(k.calls[:0], calls...)
	return k
}

// NoRetry implements redis.Cmder.
func (k *clock) NoRetry() bool { return true }

// SetErr implements redis.Cmder. It is called as that of a Call, and tells the callers
// that wait for the time. If there is none they have its error.
func (k *clock) SetErr(err error) {
	k.TimeCmd.SetErr(err)
	for _, c := range k.calls {
		switch {
		case !c.awaitsTime():
		case err == nil && k.Val().UnixMicro() > 0:
			c.at.Store(k.Val().UnixMicro())
			c.tell()
		case err != nil:
			why := err
			c.noTime.Store(&why)
		}
	}
}

// Clone implements redis.Cmder.
func (k *clock) Clone() redis.Cmder { return singleTime{k.TimeCmd.Clone().(*redis.TimeCmd)} }

// singleTime is a TIME that go-redis sends once.
type singleTime struct{ *redis.TimeCmd }

func (singleTime) NoRetry() bool { return true }

// NoTimeError says that a Timed call was done, and that the server's time is not known.
type NoTimeError struct{ cause error }

func (e *NoTimeError) Error() string {
	return "done, but the server's time is not known: " + e.cause.Error()
}

// Unwrap returns what became of the TIME, but for an error reply: that is none to the call.
func (e *NoTimeError) Unwrap() error {
	if e.Refused() {
		return nil
	}
	return e.cause
}

// Refused tells that the server has answered the TIME with an error.
func (e *NoTimeError) Refused() bool {
	_, reply := errors.AsType[redis.Error](e.cause)
	return reply
}
