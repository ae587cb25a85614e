package grpcmw

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// Domain is the domain of the ErrorInfo in Refusal.Status.
const Domain = "github.com/lockkit/lockkit"

// The reasons in the ErrorInfo of refusals, each with the code of its status.
//
//   - ReasonBusy (ABORTED): another call holds the lock.
//   - ReasonTimeout (DEADLINE_EXCEEDED, CANCELLED): the call timed out or was canceled
//     before the handler began.
//   - ReasonUnavailable (UNAVAILABLE): the store is unavailable, the Locker closed, or
//     an outer lock lost.
//   - ReasonKeyInvalid (INVALID_ARGUMENT): the key is missing, ambiguous or not allowed.
//   - ReasonFailed (INTERNAL): a KeyFunc failed, or the rules are wrong.
//   - ReasonInProgress (ABORTED): the first call with this key is in progress.
//   - ReasonMismatch (FAILED_PRECONDITION): the key was used for another request.
//   - ReasonIndeterminate (FAILED_PRECONDITION): the outcome of the first call is
//     unknown, and it is not run again.
//   - ReasonUnreplayable (FAILED_PRECONDITION): the call was carried out, but its reply
//     was not stored.
const (
	ReasonBusy          = "LOCK_BUSY"
	ReasonTimeout       = "LOCK_TIMEOUT"
	ReasonUnavailable   = "LOCK_UNAVAILABLE"
	ReasonKeyInvalid    = "KEY_INVALID"
	ReasonFailed        = "LOCK_FAILED"
	ReasonInProgress    = "IDEMPOTENCY_IN_PROGRESS"
	ReasonMismatch      = "IDEMPOTENCY_KEY_REUSED"
	ReasonIndeterminate = "IDEMPOTENCY_INDETERMINATE"
	ReasonUnreplayable  = "IDEMPOTENCY_UNREPLAYABLE"
)

// Never is the RetryAfter of a Refusal if a repetition is useless.
const Never time.Duration = -1

// defaultPause limits the pause until a client repeats a call. The hint of a busy lock
// can only shorten this pause. The hint is the time until the lock expires, but a live
// holder releases the lock earlier, or extends it.
const defaultPause = time.Second

// Refusal is the response to a refused call, with the reason.
type Refusal struct {
	Code    codes.Code
	Reason  string // the reason in the ErrorInfo
	Message string // the problem, for people
	Method  string // the full method
	Lock    string // the rule's name
	// RetryAfter is the client's pause before it repeats the call. It is 0 if the pause
	// is unknown, and Never if a repetition is useless.
	RetryAfter time.Duration
	// Err is the reason. It is not part of the response, because a KeyFunc's error can
	// contain anything.
	Err error
}

// Status returns the response to the client: code and message, with an ErrorInfo. A
// call that can be repeated gets a RetryInfo too, and a call with a wrong key a
// BadRequest.
func (r Refusal) Status() *status.Status {
	s := status.New(r.Code, r.Message)
	info := &errdetails.ErrorInfo{Reason: r.Reason, Domain: Domain, Metadata: map[string]string{"method": r.Method}}
	if r.Lock != "" {
		info.Metadata["lock"] = r.Lock
	}
	details := []protoadapt.MessageV1{info}
	if r.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	if r.Reason == ReasonKeyInvalid {
		fault := &errdetails.BadRequest_FieldViolation{Description: r.Message}
		var own *keys.Error
		if errors.As(r.Err, &own) {
			fault.Field, fault.Description = own.Source.Name, own.Detail()
		}
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{fault}})
	}
	full, err := s.WithDetails(details...)
	if err != nil {
		return s
	}
	return full
}

// refused is the error that an interceptor returns for a Refusal. The client gets the
// status, and outer interceptors can match the reason.
type refused struct {
	status *status.Status
	reason error
	ran    bool // the handler ran before the refusal
}

func (e *refused) Error() string              { return e.status.String() }
func (e *refused) Unwrap() error              { return e.reason }
func (e *refused) GRPCStatus() *status.Status { return e.status }

// refuse returns the error of the refusal r. It sets a trailer and no header, because
// grpc-go's own retry policy works only if no header was sent.
func (g *config) refuse(ctx context.Context, r Refusal) *refused {
	if r.Reason == ReasonFailed {
		if s, ok := statusOf(ctx, r.Err); ok && s.Code() != codes.OK {
			return &refused{status: s, reason: r.Err} // the error of a KeyFunc, or of the stream
		}
	}
	r.pushBack(ctx)
	s := g.render(ctx, r)
	if s.Code() == codes.OK {
		s = r.Status() // a refusal is never a reply
	}
	return &refused{status: s, reason: r.Err}
}

// statusOf returns the status that is sent for err, the error of a KeyFunc or of the
// stream.
func statusOf(ctx context.Context, err error) (*status.Status, bool) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	for r, ok := stream.(*recorder); ok; r, ok = stream.(*recorder) {
		stream = r.ServerTransportStream
	}
	if other, ok := stream.(bridge.Errors); ok {
		if s := other.StatusOf(err); s != nil {
			return s, true
		}
	}
	return status.FromError(err)
}

func (r Refusal) pushBack(ctx context.Context) {
	switch {
	case r.RetryAfter > 0:
		_ = grpc.SetTrailer(ctx, metadata.Pairs(bridge.PushbackTrailer, strconv.FormatInt(ceilMillis(r.RetryAfter), 10)))
	case r.RetryAfter < 0:
		_ = grpc.SetTrailer(ctx, metadata.Pairs(bridge.PushbackTrailer, "-1"))
	}
}

func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// pause returns the pause until the next try, for a store's hint of 0 or more. Clients
// wait for that time, so clients that were refused together must get different pauses.
func pause(hint time.Duration) time.Duration {
	d := defaultPause
	if hint > 0 {
		d = max(min(hint, d), 4*time.Millisecond)
	}
	return d/4 + rand.N(d*3/4)
}

func keyRefusal(c *call, lock string, err error) Refusal {
	r := Refusal{Method: c.name, Lock: lock, Err: err}
	var own *keys.Error
	isOwn := errors.As(err, &own)
	switch {
	case isOwn:
		r.Code, r.Reason, r.RetryAfter = codes.InvalidArgument, ReasonKeyInvalid, Never
		r.Message = own.Detail()
	case errors.Is(err, core.ErrInvalid):
		r.Code, r.Reason, r.RetryAfter = codes.InvalidArgument, ReasonKeyInvalid, Never
		r.Message = "the call has no key that can be used"
	default:
		return failedRefusal(c, lock, err)
	}
	return r
}

func acquireRefusal(ctx context.Context, c *call, lock string, err error) Refusal {
	r := Refusal{Method: c.name, Lock: lock, Err: err}
	var busy *core.BusyError
	isBusy := errors.As(err, &busy)
	switch {
	case isBusy:
		r.Code, r.Reason, r.RetryAfter = codes.Aborted, ReasonBusy, pause(busy.RetryAfter)
		r.Message = "another call is in progress"
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return failedRefusal(c, lock, err)
	default:
		return storeRefusal(ctx, c, lock, err)
	}
	return r
}

// storeRefusal returns the refusal of a call with a done context, an unavailable store,
// a lost outer lease or a closed Locker.
func storeRefusal(ctx context.Context, c *call, lock string, err error) Refusal {
	r := Refusal{Method: c.name, Lock: lock, Err: err}
	if end := ctx.Err(); end != nil && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrClosed) {
		r.Code, r.Reason = status.FromContextError(end).Code(), ReasonTimeout
		r.Message = "the call timed out before it began"
		return r
	}
	r.Code, r.Reason, r.RetryAfter = codes.Unavailable, ReasonUnavailable, pause(0)
	r.Message = "locks are unavailable; the call was not run"
	return r
}

func failedRefusal(c *call, lock string, err error) Refusal {
	r := Refusal{Code: codes.Internal, Reason: ReasonFailed, Method: c.name, Lock: lock, Err: err}
	r.Message = "the key of the call could not be determined"
	var own setupError
	if errors.As(err, &own) {
		r.Message = own.Error()
	}
	return r
}
