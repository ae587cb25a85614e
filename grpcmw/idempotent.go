package grpcmw

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// replayedMetadata marks an answer that was given before.
const replayedMetadata = "idempotent-replayed"

// operation is the Name of each call. Method and CallName are no part of it, so
// that a key that is used again elsewhere is noticed.
const operation = "grpc"

// Idempotent gives unary calls with the same idempotency key one answer: that of the first,
// which is kept by o and given again, instead of running the handler again. The key is in the
// metadata "idempotency-key", or "grpcgateway-idempotency-key" as grpc-gateway names it, as 1
// to 255 visible ASCII characters, with or without the quotes of an HTTP header. A quoted one
// may contain blanks. A call without one is refused, and so is one that has two different keys
// by the two names.
//
// scope identifies the caller: a key counts within its scope only, so that no caller can
// get another caller's answer by guessing or repeating a key. Take it from what
// authentication found, which has to come before; a KeyFunc of yours can read it
// from the context. AnyCaller is for services that have no callers to tell apart.
//
// A request is the same if the method and all fields are; fields that this
// program does not know are ignored. See Fingerprint.
//
// A reply is made again as a message of the same type, an error that is kept with its
// details, see KeepIf. What is given again has "idempotent-replayed: true" in the
// trailer, and replies in the header too. Headers and trailers of the handler are
// kept where KeepMetadata names them. A reply that is larger than AnswerLimit, or of a type that the
// program has not registered, is not kept either.
//
// The handler runs under a context that ends when the client goes away, see
// Detached, or when the run's lease is lost. once.AttemptFromContext tells
// there whether an earlier run was begun and did not come to an answer. A call that
// another rule refused further in, of this interceptor or of another one inside, is
// no attempt, and nothing is kept of it. Neither is one whose handler returns an error that
// once.Withdraw has marked, as of a request that is not valid: its key is free for a mended
// one. What the handler answers is sent, saved or not. For once.AtMostOnce, CANCELLED and
// DEADLINE_EXCEEDED of the handler say that it is not known how far it came; after
// other errors that are not kept, and after once.NotFinal, it runs again.
//
// After Commit the database decides: the committed reply is sent, whatever the handler
// returns, or UNAVAILABLE if it returns a reply that was not committed.
//
// A key counts for all methods, and all services that keep their answers in the
// same store: a handler that passes the key on to another of them is told that
// it is in progress. Let each call have a key of its own.
//
// Methods marked with idempotency_level = NO_SIDE_EFFECTS in their .proto are
// passed by: to repeat them does no harm, and what they would be told is old.
// A stream has no answer that could be kept: Check refuses the rule, and so does
// each call.
//
// It panics if o or scope is nil, or an option is nil or not for Idempotent.
// How runs are claimed is for once.Acquire, given to once.New: with core.Wait,
// a call waits for the answer of the one that is being worked on.
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

// AnyCaller is a scope for services whose callers are one, or cannot be told
// apart: a key is all it takes to get its answer.
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
		return nil, m.refuse(e.outer, uncommitted(c, m.callName, err))
	case e.ran:
		return e.reply, e.failure // whatever err is: saved or not, the answer stands
	case err != nil:
		return nil, c.refuse(e.outer, &m.config, m.onceRefusal(e.outer, c, err))
	}
	return m.replay(e.outer, c, out.Value)
}

// identify says which call it is.
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

// joined is a KeyFunc's result as one text without control characters, different
// for different parts. Several parts begin with a colon. One value is taken as it
// is, since escaping could make a key that is allowed too long.
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

// execution is a call that runs, or does not.
type execution struct {
	*idempotent
	c       *call
	next    int
	outer   context.Context
	decided atomic.Bool // by what came first, the handler or the end of a call that it is detached from
	ran     bool
	set     *recorder // nil: what the handler sets is not noted
	reply   any
	failure error
	// committed is set if the handler has called Commit.
	committed bool
}

// run runs the handler, and returns what is to be kept.
func (e *execution) run(ctx context.Context) (once.Answer, error) {
	if !e.decided.CompareAndSwap(false, true) {
		<-ctx.Done()
		return once.Answer{}, once.Withdraw(fmt.Errorf("grpcmw: %w: it was over before it began: %w", core.ErrBusy, context.Cause(ctx)))
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
		once.NotFinal(e.outer) // an Idempotent outside has the same answer
	}
	if e.withdrawn(ctx) {
		return once.Answer{}, once.Withdraw(e.failure)
	}
	if e.committed && e.failure == nil {
		return once.Answer{}, nil
	}
	s, lasting := e.lasting(ctx, e.failure)
	if !lasting || e.committed {
		return once.Answer{}, unclear(s, e.failure)
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
		return once.Answer{}, unclear(s, e.failure)
	}
	return once.Answer{Value: value, Unreplayable: k.Unreplayable}, nil
}

// encode is what is kept of k.
func (e *execution) encode(k *Kept) ([]byte, error) {
	block := encodeMetadata(e.metadata, k.Header, k.Trailer)
	switch {
	case len(block) > maxKeptMetadata:
		return nil, errMuchMetadata
	case k.Status.Code() == codes.OK:
		return encodeReply(headOf(block), k.Reply, e.limit)
	}
	return encodeFailure(headOf(block), k.Status.Proto(), e.limit) // of a copy
}

// withdrawn reports whether the handler says that it has done nothing, or was not reached
// since a rule further in refused the call: one of the same interceptor, or of another one,
// unless something in between has asked for its attempt and may have acted on that.
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
	return e.failure != nil && errors.As(e.failure, new(*refused)) && !adapter.AttemptAsked(ctx)
}

// notDone is an error that once.Withdraw has marked, for a rule outside, with the status
// that was marked, for the client.
type notDone struct {
	error
	status *status.Status
}

func (e *notDone) Unwrap() error { return e.error }

func (e *notDone) GRPCStatus() *status.Status { return e.status }

// lasting is the status that is sent, and whether it is one of the handler's work that
// can be kept.
func (e *execution) lasting(ctx context.Context, failure error) (*status.Status, bool) {
	if failure == nil {
		return status.New(codes.OK, ""), true
	}
	s, ok := status.FromError(failure)
	if !ok {
		s = status.FromContextError(failure) // as the server sends it
		if ctx.Err() != nil && s.Code() != codes.Unknown {
			return s, false // the handler was told to stop, and did
		}
	}
	if ours := (*refused)(nil); errors.As(failure, &ours) || errors.Is(failure, once.ErrIndeterminate) {
		return s, false // nothing ran, or that is not known
	}
	return s, s.Code() != codes.OK
}

// errNotKept is why a reply is not kept.
var errNotKept = errors.New("grpcmw: KeepIf does not keep the reply")

// unclear is failure, marked for once if it does not say that nothing was done.
func unclear(s *status.Status, failure error) error {
	if failure == nil {
		return errNotKept
	}
	ours := (*refused)(nil)
	if (s.Code() == codes.Canceled || s.Code() == codes.DeadlineExceeded) && !errors.As(failure, &ours) {
		return fmt.Errorf("%w: %w", once.ErrIndeterminate, failure)
	}
	return failure
}

// detach returns a context that ends with ctx until the handler runs, and then
// only with a lease around it that is lost.
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

// replay gives an answer again.
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
		if len(a.header) > 0 { // or none, as the first time
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

// errStream is why a stream has no answer that could be kept.
const errStream = setupError("Idempotent cannot be applied to a stream")

// onceRefusal is the answer where the handler did not run and nothing was
// replayed.
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
