package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/core/once"
)

// replayedMetadata marks a replayed response.
const replayedMetadata = "idempotent-replayed"

// operation is the Name of each once.Call. It includes neither method nor CallName, so
// the use of one key for two methods is noticed.
const operation = "grpc"

// Idempotent returns a rule that gives unary calls with the same idempotency key the
// response of the first call. o stores that response, and later calls get it without
// another run of the handler. The key is in the metadata "idempotency-key", or
// "grpcgateway-idempotency-key" as grpc-gateway names it. Key sets another source. The
// value is a quoted string of 1 to 255 characters, as in the HTTP header: visible ASCII
// and blanks, with a backslash before each quote and backslash. The same text without
// quotes is the same key, but a key without quotes contains no blanks, quotes, commas
// or semicolons. Blanks inside the quotes are part of the key, and blanks around the
// value are ignored. A call without a key is refused, and so is a call with two
// different keys under the two names.
//
// scope identifies the caller. A key is valid only within its scope, so no caller can
// get another caller's response by guessing or repeating a key. Take the scope from the
// result of authentication, which has to run before the rule. Your own KeyFunc can read
// the scope from the context. AnyCaller is for services whose callers cannot be
// distinguished.
//
// Two requests are the same if they have the same method and the same fields; see
// Fingerprint. Fields that this program does not know are ignored. A request of a codec
// other than Protobuf's is refused with INTERNAL, because its reply could not be
// stored.
//
// A reply is replayed as a message of the same type, and a stored error with its
// details; see KeepIf. A replay has "idempotent-replayed: true" in the trailer. A
// replayed reply has this mark in the header too. Headers and trailers of the handler
// are stored if KeepMetadata names them. A reply that is larger than AnswerLimit or of
// an unregistered type is not stored; see Kept.Unreplayable.
//
// The handler's context is canceled when the client disconnects or the deadline passes
// (see Detached), or when the run's lease is lost. once.AttemptFromContext returns the
// number of the attempt. A number greater than 1 means that an earlier run began and
// stored no response. That run may still be running. The handler's response is sent,
// whether it was stored or not. There are special cases:
//
//   - A call that an inner rule refuses does not count as an attempt, and is not
//     stored. The inner rule can belong to this interceptor or to an inner interceptor.
//     A refusal by an inner interceptor counts if code in between has called
//     once.AttemptFromContext.
//   - A call whose handler returns an error that once.Withdraw has marked, for example
//     for an invalid request, does not count either. The key is then free for a
//     corrected request.
//   - With once.AtMostOnce, CANCELLED and DEADLINE_EXCEEDED of the handler mean that
//     the work's progress is unknown, so a repetition does not run the handler. After
//     other errors that are not stored, and after once.NotFinal, a repetition runs the
//     handler again.
//   - After Commit the database decides. The committed reply is sent, whatever the
//     handler returns. If the handler returns a reply that was not committed, the
//     client gets UNAVAILABLE.
//
// A key is valid for all methods, and for all services whose responses are in the same
// store. If a handler passes the key of its call on to another such method in the same
// scope, the inner call is refused as in progress. Use a separate key for each call, or
// put the method into the scope:
//
//	method := func(_ context.Context, fullMethod string, _ any) (string, error) {
//		return fullMethod, nil
//	}
//	grpcmw.Idempotent(runs, grpcmw.Join(method, account))
//
// Methods with idempotency_level = NO_SIDE_EFFECTS in their .proto pass. Their
// repetition does no harm, and a stored response would be outdated. A stream has no
// response that could be stored. So Check reports an Idempotent on a stream, and each
// call of the stream is refused.
//
// Idempotent panics if o or scope is nil, or if an option is nil or not for Idempotent.
// Pass once.Acquire to once.New to set how runs are claimed. With core.Wait, a call
// waits for the response of a call in progress.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) Rule {
	switch {
	case o == nil:
		panic("grpcmw: Idempotent: the Once is nil")
	case scope == nil:
		panic("grpcmw: Idempotent: the scope is nil, see AnyCaller")
	}
	g := configure("Idempotent", forIdempotent, opts)
	return &idempotent{config: g, once: adapter.WithLabel(o, g.callName), scope: scope}
}

// AnyCaller returns a scope for services that have one caller, or cannot distinguish
// their callers. Any client that has a key gets the key's response.
func AnyCaller() KeyFunc {
	return func(context.Context, string, any) (string, error) { return "any", nil }
}

type idempotent struct {
	config
	once  *once.Once
	scope KeyFunc
}

func (m *idempotent) serve(ctx context.Context, c *call, next int) (any, error) {
	switch {
	case c.stream != nil:
		return nil, c.refuse(ctx, &m.config, keyRefusal(c, m.callName, errStream))
	case c.pure, m.skip != nil && m.skip(ctx, c.name, c.req):
		return c.run(ctx, next)
	}
	id, err := m.identify(ctx, c)
	if err != nil {
		return nil, c.refuse(ctx, &m.config, keyRefusal(c, m.callName, err))
	}
	e := execution{idempotent: m, c: c, next: next, outer: ctx}
	if m.detached {
		var end func()
		ctx, end = e.detach(ctx)
		defer end()
	}
	out, err := m.once.Do(ctx, id, e.run)
	switch {
	case e.committed && err == nil:
		a, err := decodeAnswer(out.Value)
		return a.reply, err
	case e.committed && (e.failure == nil || errors.Is(err, core.ErrUnavailable)):
		refusal := m.refuse(e.outer, uncommitted(c, m.callName, err))
		refusal.ran = true
		return nil, refusal
	case e.ran:
		return e.reply, e.failure // the response is sent with any err, stored or not
	case err != nil:
		return nil, c.refuse(e.outer, &m.config, m.onceRefusal(e.outer, c, err))
	}
	return m.replay(e.outer, c, out.Value)
}

func (m *idempotent) identify(ctx context.Context, c *call) (id once.Call, err error) {
	id.Name = operation
	if id.Key, err = joined(ctx, c, m.id, sourceOf("key")); err != nil {
		return id, err
	}
	if id.Scope, err = joined(ctx, c, m.scope, sourceOf("scope")); err != nil {
		return id, err
	}
	id.Fingerprint, err = fingerprintOf(ctx, c, m.fingerprint)
	return id, err
}

// joined returns a KeyFunc's result as one text without control characters. Results
// with different parts give different texts. The text of several parts begins with a
// colon. A single value is not escaped, because escapes could make an allowed key too
// long.
func joined(ctx context.Context, c *call, f KeyFunc, what keys.Source) (string, error) {
	value, err := c.ask(ctx, f)
	if err != nil {
		return "", err
	}
	parts, err := what.Parts(value)
	switch {
	case err != nil:
		return "", err
	case len(parts) > 1:
		return what.Key("", value)
	case strings.HasPrefix(value, ":"), strings.HasPrefix(value, "="):
		value = "=" + value
	}
	return what.Part(value)
}

// execution is a call under an Idempotent, whether the call's handler runs or not.
type execution struct {
	*idempotent
	c     *call
	next  int
	outer context.Context
	// decided is set by the first of two events: the handler begins, or the context of a
	// Detached call is done.
	decided atomic.Bool
	ran     bool
	set     *recorder // nil: the handler's metadata is not recorded
	reply   any
	failure error
	// committed reports whether the handler has called Commit.
	committed bool

	mu      sync.Mutex
	running int  // calls of inner interceptors that have not returned
	handled bool // such a call has reached its handler
	unknown bool // the progress of the last of these calls is unknown
}

// begun records for e, and for the executions outside, that the rules of an inner
// interceptor have let the call c pass.
func (e *execution) begun(c *call) {
	e.around(c, func(e *execution) { e.running++ })
}

// returned records that the call c has returned err or has panicked. If err is no refusal
// by the kit, the call has reached its handler.
func (e *execution) returned(c *call, err error, panicked bool) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	reached := !errors.As(err, new(*refused))
	e.around(c, func(e *execution) {
		if e.running--; reached {
			e.handled, e.unknown = true, panicked || isUnknown(s) || errors.Is(err, once.ErrIndeterminate)
		}
	})
}

// around calls note for e and the executions outside, except those of c's interceptor.
func (e *execution) around(c *call, note func(e *execution)) {
	for ; e != nil; e, _ = e.outer.Value(executionKey{}).(*execution) {
		if e.c != c {
			e.mu.Lock()
			note(e)
			e.mu.Unlock()
		}
	}
}

// calls reports whether a call of an inner interceptor has reached its handler, and
// whether its progress is unknown. Code in between can have left a call that is running.
func (e *execution) calls() (handled, unknown bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handled || e.running > 0, e.unknown || e.running > 0
}

// run runs the handler, and returns the response to store.
func (e *execution) run(ctx context.Context) (once.Answer, error) {
	if !e.decided.CompareAndSwap(false, true) {
		<-ctx.Done()
		return once.Answer{}, once.Withdraw(fmt.Errorf("grpcmw: %w: the call was done before the handler began: %w", core.ErrBusy, context.Cause(ctx)))
	}
	e.ran = true
	inside := context.WithValue(ctx, executionKey{}, e)
	if stream := grpc.ServerTransportStreamFromContext(ctx); stream != nil && (e.keepIf != nil || len(e.metadata) > 0) {
		e.set = record(stream)
		inside = grpc.NewContextWithServerTransportStream(inside, e.set)
	}
	e.reply, e.failure = e.c.run(inside, e.next)
	e.committed = adapter.Committed(ctx)
	final := adapter.IsFinal(ctx)
	if !final {
		once.NotFinal(e.outer) // for an outer Idempotent, which has the same response
	}
	if e.withdrawn(ctx) {
		return once.Answer{}, once.Withdraw(e.failure)
	}
	if e.committed && e.failure == nil {
		return once.Answer{}, nil
	}
	s, lasting := e.lasting(ctx, e.failure)
	if !lasting || e.committed {
		return once.Answer{}, e.unclear(s)
	}
	k := Kept{Method: e.c.name, Reply: e.reply, Status: s, ByDefault: e.failure == nil || isDeterministic(s)}
	k.Header, k.Trailer = e.set.noted()
	value, err := e.encode(&k)
	k.Unreplayable = err != nil
	keep := k.ByDefault
	if final && e.keepIf != nil {
		keep = e.keepIf(k)
	}
	if !keep {
		return once.Answer{}, e.unclear(s)
	}
	return once.Answer{Value: value, Unreplayable: k.Unreplayable}, nil
}

func (e *execution) encode(k *Kept) ([]byte, error) {
	block := encodeMetadata(e.metadata, k.Header, k.Trailer)
	switch {
	case len(block) > maxKeptMetadata:
		return nil, errMuchMetadata
	case k.Status.Code() == codes.OK:
		return encodeReply(headOf(block), k.Reply, e.limit)
	}
	return encodeFailure(headOf(block), k.Status.Proto(), e.limit) // Proto returns a copy
}

// withdrawn reports whether the handler's error is marked by once.Withdraw, or an inner
// rule refused the call. That rule can belong to this interceptor or to an inner
// interceptor. A refusal by an inner interceptor does not count if code in between has
// read the attempt, or if an earlier try of such code has reached the handler.
func (e *execution) withdrawn(ctx context.Context) bool {
	if e.c.refused {
		return true
	}
	if err, ok := adapter.Withdrawn(e.failure); ok {
		if s, ok := status.FromError(err); ok {
			e.failure = &notDone{e.failure, s}
		}
		return true
	}
	ours, handled := (*refused)(nil), false
	if errors.As(e.failure, &ours) {
		handled, _ = e.calls()
	}
	return ours != nil && !ours.ran && !handled && !adapter.AttemptAsked(ctx)
}

// notDone is an error that once.Withdraw has marked. An outer rule sees the mark, and
// the client gets the status of the error inside the mark.
type notDone struct {
	error
	status *status.Status
}

func (e *notDone) Unwrap() error { return e.error }

func (e *notDone) GRPCStatus() *status.Status { return e.status }

// lasting returns the sent status, and reports whether it is a result of the handler's
// work that can be stored.
func (e *execution) lasting(ctx context.Context, failure error) (*status.Status, bool) {
	if failure == nil {
		return status.New(codes.OK, ""), true
	}
	s, ok := status.FromError(failure)
	if !ok {
		s = status.FromContextError(failure) // the server sends the same
		if ctx.Err() != nil && s.Code() != codes.Unknown {
			return s, false // the handler's context is done, and it stopped
		}
	}
	if ours := (*refused)(nil); errors.As(failure, &ours) || errors.Is(failure, once.ErrIndeterminate) {
		return s, false // nothing ran, or it is not known whether anything ran
	}
	return s, s.Code() != codes.OK
}

var errNotKept = errors.New("grpcmw: KeepIf does not store the reply")

// unclear returns the failure, which has the status s, or errNotKept without a failure.
// If the handler's progress is unknown, the error also matches once.ErrIndeterminate.
// After a refusal by the kit, an earlier try decides that.
func (e *execution) unclear(s *status.Status) error {
	if e.failure == nil {
		return errNotKept
	}
	unknown := isUnknown(s)
	if errors.As(e.failure, new(*refused)) {
		_, unknown = e.calls()
	}
	if unknown {
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, e.failure)
	}
	return e.failure
}

// isUnknown reports whether s leaves the progress of its handler unknown.
func isUnknown(s *status.Status) bool {
	return s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded
}

// detach returns a context that is canceled with ctx until the handler runs. After
// that, the context is canceled only if the first cause of ctx is the loss of an outer
// lease or the closing of that lease's Locker.
func (e *execution) detach(ctx context.Context) (context.Context, func()) {
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if e.decided.CompareAndSwap(false, true) || errors.Is(cause, core.ErrLost) || errors.Is(cause, core.ErrClosed) {
			cancel(cause)
		}
	})
	return detached, func() {
		stop()
		cancel(nil)
	}
}

func (m *idempotent) replay(ctx context.Context, c *call, value []byte) (any, error) {
	a, err := decodeAnswer(value)
	if err != nil {
		r := failedRefusal(c, m.callName, err)
		r.Message = "the answer that is kept cannot be read"
		return nil, c.refuse(ctx, &m.config, r)
	}
	mark := metadata.Pairs(replayedMetadata, "true")
	_ = grpc.SetTrailer(ctx, metadata.Join(a.trailer, mark))
	if a.failure != nil {
		if len(a.header) > 0 { // send no header if the first response had none
			_ = grpc.SetHeader(ctx, a.header)
		}
		return nil, a.failure.Err()
	}
	_ = grpc.SetHeader(ctx, metadata.Join(a.header, mark))
	return a.reply, nil
}

func (m *idempotent) inspect(to *method) []error {
	if to.stream {
		return []error{errStream}
	}
	ask := []KeyFunc{m.id, m.scope}
	if m.fingerprint != nil {
		ask = append(ask, m.fingerprint)
	}
	return to.try(ask...)
}

const errStream = setupError("Idempotent cannot be applied to a stream")

// onceRefusal returns the refusal of a call that gets neither a run nor a replay.
func (m *idempotent) onceRefusal(ctx context.Context, c *call, err error) Refusal {
	r := Refusal{Code: codes.FailedPrecondition, Method: c.name, Lock: m.callName, RetryAfter: Never, Err: err}
	var busy *core.BusyError
	isBusy := errors.As(err, &busy)
	switch {
	case isBusy:
		r.Code, r.Reason, r.RetryAfter = codes.Aborted, ReasonInProgress, pause(busy.RetryAfter)
		r.Message = "the first call with this idempotency key is in progress"
	case errors.Is(err, once.ErrMismatch):
		r.Reason, r.Message = ReasonMismatch, "the idempotency key was used for another request"
	case errors.Is(err, once.ErrIndeterminate):
		r.Reason, r.Message = ReasonIndeterminate, "the first call broke off and may have had its effect; it is not run again"
	case errors.Is(err, once.ErrUnreplayable):
		r.Reason, r.Message = ReasonUnreplayable, "the call was carried out before; its reply was not kept"
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return failedRefusal(c, m.callName, err)
	default:
		return storeRefusal(ctx, c, m.callName, err)
	}
	return r
}
