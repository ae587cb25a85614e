package grpcmw

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// replayedMetadata marks an answer that was given before.
const replayedMetadata = "idempotent-replayed"

// Idempotent gives unary calls that are made again with the same key the first
// one's answer, instead of running the handler again. The key is in the metadata
// "idempotency-key", or "grpcgateway-idempotency-key" as grpc-gateway names it:
// 1 to 255 visible ASCII characters, with or without the quotes of an HTTP
// header. A call without one is refused.
//
// scope is who calls: the tenant or account that was authenticated, not what the
// client says of itself and not a token that changes. Calls of different scopes
// never see each other's answers; GlobalScope says that all callers are one.
// Mount the interceptor behind authentication and authorisation: an answer is
// given again without asking the handler.
//
// Another request under the same key is refused. Requests are the same if their
// method and all their fields are; fields that this program does not know are
// ignored, and Fingerprint looks at a part only.
//
// A reply is kept for as long as o retains it, and made again as a message of
// the same type. An error is kept if Keep says so, with its details. What is
// given again has "idempotent-replayed: true" in the trailer, and replies in the
// header too. Headers and trailers of the handler are not kept. A reply that is
// larger than ReplyLimit, or of a type that is not registered, is given once.
//
// The handler runs under a context that ends when this process can no longer
// vouch for the run, and finds its attempt by once.AttemptFromContext. Its answer
// stands even if it cannot be saved. After a panic the call can be made again, unless once.AtMostOnce.
//
// Methods that are marked with idempotency_level = NO_SIDE_EFFECTS in their
// .proto are passed by: they need no key, and an answer that is a day old would be wrong. Streams
// cannot be idempotent in this way: Check refuses them.
//
// It panics if o or scope is nil, or an option is nil or not one of Idempotent's.
func Idempotent(o *once.Once, scope KeyFunc, opts ...Option) Rule {
	switch {
	case o == nil:
		panic("grpcmw: Idempotent: once is nil")
	case scope == nil:
		panic("grpcmw: Idempotent: the scope is nil, GlobalScope is for where all callers are one")
	}
	return &idempotent{config: configure("Idempotent", forIdempotent, opts), once: o, scope: scope}
}

// GlobalScope says that all callers are one. Whoever learns another's
// idempotency key, and sends the same request, then gets the other's answer.
func GlobalScope() KeyFunc {
	return func(context.Context, string, any) (string, error) { return "global", nil }
}

type idempotent struct {
	config
	once  *once.Once
	scope KeyFunc
}

func (m *idempotent) serve(ctx context.Context, c *call, next int) (any, error) {
	switch {
	case c.stream != nil:
		return nil, m.refuse(ctx, keyRefusal(c, m.label, errStream))
	case c.pure, m.skip != nil && m.skip(ctx, c.name, c.req):
		return c.run(ctx, next)
	}
	id, err := m.identify(ctx, c)
	switch {
	case err == errNoKey:
		return c.run(ctx, next)
	case err != nil:
		return nil, m.refuse(ctx, keyRefusal(c, m.label, err))
	}
	var (
		ran     bool
		reply   any
		failure error
	)
	out, err := m.once.Do(ctx, id, func(ctx context.Context) (once.Answer, error) {
		ran = true
		reply, failure = c.run(ctx, next)
		return m.answer(reply, failure)
	})
	switch {
	case ran:
		return reply, failure // whether it could be saved or not
	case err != nil:
		return nil, m.refuse(ctx, onceRefusal(ctx, c, m.label, err))
	}
	return m.replay(ctx, c, out.Value)
}

// errNoKey says that a call has no key where that is allowed.
var errNoKey = errors.New("grpcmw: no idempotency key")

// identify says which call it is.
func (m *idempotent) identify(ctx context.Context, c *call) (id once.Call, err error) {
	id.Name = m.label
	if id.Key, err = joined(ctx, c, m.id); err != nil {
		if own := (*keyError)(nil); m.optional && errors.As(err, &own) && own.absent {
			err = errNoKey
		}
		return id, err
	}
	if id.Scope, err = joined(ctx, c, m.scope); err != nil {
		return id, err
	}
	id.Fingerprint, err = fingerprintOf(ctx, c, m.part)
	return id, err
}

// joined is a KeyFunc's result with its parts escaped.
func joined(ctx context.Context, c *call, f KeyFunc) (string, error) {
	value, err := c.ask(ctx, f)
	if err != nil {
		return "", err
	}
	parts, err := split(value)
	if err != nil {
		return "", err
	}
	if value = strings.TrimPrefix(core.Key("", parts...), ":"); len(value) > maxKey {
		return "", part.bad("is too long")
	}
	return value, nil
}

// answer is what is kept of a handler's answer, or the error after which it may
// run again.
func (m *idempotent) answer(reply any, failure error) (once.Answer, error) {
	var value []byte
	var err error
	if failure != nil {
		s, isStatus := status.FromError(failure)
		ours := (*refused)(nil)
		if !isStatus || s.Code() == codes.OK || errors.As(failure, &ours) || errors.Is(failure, once.ErrIndeterminate) || !m.keep(s) {
			return once.Answer{}, failure
		}
		value, err = encode(s.Proto())
	} else {
		value, err = encodeReply(reply)
	}
	if err != nil || len(value) > m.limit {
		return once.Answer{Unreplayable: true}, nil
	}
	return once.Answer{Value: value}, nil
}

// replay gives an answer again.
func (m *idempotent) replay(ctx context.Context, c *call, value []byte) (any, error) {
	reply, failure, err := decodeAnswer(value)
	if err != nil {
		r := failedRefusal(c, m.label, err)
		r.Message = "the answer that is kept cannot be read"
		return nil, m.refuse(ctx, r)
	}
	mark := metadata.Pairs(replayedMetadata, "true")
	_ = grpc.SetTrailer(ctx, mark)
	if failure != nil {
		return nil, failure.Err() // without a header
	}
	_ = grpc.SetHeader(ctx, mark)
	return reply, nil
}

func (m *idempotent) inspect(to *method) []error {
	if to.stream {
		return []error{errStream}
	}
	ask := []KeyFunc{m.id, m.scope}
	if m.part != nil {
		ask = append(ask, m.part)
	}
	return to.try(ask...)
}

// errStream is why a stream has no answer that could be kept.
const errStream = setupError("Idempotent cannot be applied to a stream")

// onceRefusal is the answer where the handler did not run and nothing was
// replayed.
func onceRefusal(ctx context.Context, c *call, name string, err error) Refusal {
	r := Refusal{Code: codes.FailedPrecondition, Method: c.name, Lock: name, RetryAfter: Never, Err: err}
	busy, isBusy := errors.AsType[*core.BusyError](err)
	switch {
	case isBusy:
		r.Code, r.Reason, r.RetryAfter = codes.Aborted, ReasonInProgress, pause(busy.RetryAfter)
		r.Message = "the first call with this idempotency key is being worked on"
	case errors.Is(err, once.ErrMismatch):
		r.Reason, r.Message = ReasonMismatch, "the idempotency key was used for another request"
	case errors.Is(err, once.ErrIndeterminate):
		r.Reason, r.Message = ReasonIndeterminate, "it is not known how far the first call came, and it is not run again"
	case errors.Is(err, once.ErrUnreplayable):
		r.Reason, r.Message = ReasonUnreplayable, "the call was done before, and its reply was not kept"
	case errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return failedRefusal(c, name, err)
	default:
		return storeRefusal(ctx, c, name, err)
	}
	return r
}
