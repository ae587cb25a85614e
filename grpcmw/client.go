package grpcmw

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
	"github.com/lockkit/lockkit/retry"
)

// ClientOption is a setting of a client interceptor. A value that is not allowed causes a
// panic.
type ClientOption func(*client)

type client struct {
	policy  retry.Policy
	codes   []codes.Code
	methods map[string]bool // nil: all
	timeout time.Duration   // the time limit of one try; 0 means none
	owner   bool            // whether the owner is sent
	unary   []string        // the options that only unary calls take
}

var defaultRetry = retry.Policy{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2, Jitter: 0.5, Attempts: 8}

// Retry sets the number of tries of a call and the pauses between them. The default is
// 8 tries within about ten seconds. A pause is never shorter than the server's hint.
// With retry.None every call has its key and one try. Retry panics if p is not valid.
func Retry(p retry.Policy) ClientOption {
	if err := p.Validate(); err != nil {
		panic(fmt.Sprintf("grpcmw: Retry: %v", err))
	}
	return func(g *client) { g.policy, g.unary = p, append(g.unary, "Retry") }
}

// RetryCodes sets the codes of errors, from any source, after which a call is tried
// again. The default is UNAVAILABLE. A call that a rule of this package has refused
// with a retry hint is tried again whatever its code, within the policy.
func RetryCodes(c ...codes.Code) ClientOption {
	c = slices.Clone(c)
	return func(g *client) { g.codes, g.unary = c, append(g.unary, "RetryCodes") }
}

// Methods limits the interceptor to these methods, by their full names. Other calls
// pass. Several Methods options add up. Methods panics if a name is not of the form
// "/package.Service/Method".
func Methods(fullMethods ...string) ClientOption {
	fullMethods = slices.Clone(fullMethods)
	for _, m := range fullMethods {
		if !isFullMethod(m) {
			panic(fmt.Sprintf("grpcmw: Methods: %q is not of the form /package.Service/Method", m))
		}
	}
	return func(g *client) {
		if g.methods == nil {
			g.methods = make(map[string]bool)
		}
		for _, m := range fullMethods {
			g.methods[m] = true
		}
	}
}

// TryTimeout limits each try to d, in addition to the call's own deadline. By default a
// try has no separate limit. A try without a response within d is abandoned, and the
// call is tried again within the policy of Retry. TryTimeout panics if d is not
// positive.
func TryTimeout(d time.Duration) ClientOption {
	if d <= 0 {
		panic(fmt.Sprintf("grpcmw: TryTimeout: %v s is out of range (more than 0)", d.Seconds()))
	}
	return func(g *client) { g.timeout, g.unary = d, append(g.unary, "TryTimeout") }
}

// UnaryClientInterceptor returns an interceptor that gives each call one idempotency
// key for all its tries. The interceptor tries again after a busy lock, a call in
// progress, an unavailable store, an UNAVAILABLE from any source (see RetryCodes), and
// a try that has exceeded TryTimeout. It keeps a key that the caller has set:
//
//	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
//
// It also keeps a key that grpc-gateway has put under "grpcgateway-idempotency-key",
// and sends that key under "idempotency-key" too.
//
// The server's pause is in the trailer "grpc-retry-pushback-ms" or in a RetryInfo.
// Between tries the interceptor waits at least for the server's pause and for the
// policy's pause. It stops if the server forbids further tries, or if the policy's
// attempts are used up. It also stops, without a pause, if the next try would come
// after the call's deadline. The call then returns the last try's error. If the context
// was done during a pause, the call returns DEADLINE_EXCEEDED or CANCELLED.
//
// After an UNAVAILABLE, another error may not show whether the server has done the work
// in an earlier try. For example, the reply to the first try was lost, and the second
// try got UNAUTHENTICATED. The call then returns UNKNOWN, with the last error in its
// text. Only a reply, and an error with the trailer "idempotent-replayed", show the
// outcome of an earlier try. UNAVAILABLE, UNKNOWN, DEADLINE_EXCEEDED, CANCELLED,
// INTERNAL and DATA_LOSS are returned, because they do not claim that the call was
// refused. A repetition of such a call needs the same key, so set the key yourself.
//
// Other methods than those that Idempotent guards could do their work twice. So use the
// interceptor only for guarded methods, or name these with Methods. Mount the
// interceptor outside interceptors that apply to a single try. Do not set grpc-go's own
// retry policy for the same methods. The attempts of the two policies would multiply,
// and its attempts would hide each other's outcomes.
func UnaryClientInterceptor(opts ...ClientOption) grpc.UnaryClientInterceptor {
	return newClient("UnaryClientInterceptor", opts).call
}

// StreamClientInterceptor returns an interceptor that sends the owner of the caller's
// lease with streams. A stream whose Lock has TakeOwner then joins the lease until the
// stream ends. Only SendOwner and Methods have an effect: a stream has no idempotency
// key, and is not tried again. StreamClientInterceptor panics if an option is nil or
// concerns retries.
func StreamClientInterceptor(opts ...ClientOption) grpc.StreamClientInterceptor {
	g := newClient("StreamClientInterceptor", opts)
	if len(g.unary) > 0 {
		panic(fmt.Sprintf("grpcmw: StreamClientInterceptor: %s is an option of UnaryClientInterceptor", g.unary[0]))
	}
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if g.owner && g.covers(method) {
			ctx = withOwner(ctx)
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

func newClient(interceptor string, opts []ClientOption) *client {
	g := &client{policy: defaultRetry, codes: []codes.Code{codes.Unavailable}}
	for _, o := range opts {
		if o == nil {
			panic("grpcmw: " + interceptor + ": an option is nil")
		}
		o(g)
	}
	return g
}

func (g *client) covers(method string) bool { return g.methods == nil || g.methods[method] }

func (g *client) call(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if !g.covers(method) {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	ctx = withKey(ctx)
	if g.owner {
		ctx = withOwner(ctx)
	}
	var trailer metadata.MD
	opts = append(slices.Clip(opts), grpc.Trailer(&trailer))
	var last error
	tries, final := 0, false
	open := false // an earlier try than the last may have been carried out
	next := false // open for the next try
	_, err := retry.Do(ctx, g.policy, func(ctx context.Context) (struct{}, error) {
		trailer, open = nil, next
		tries++
		var late bool
		late, last = g.try(ctx, method, req, reply, cc, invoker, opts)
		if last == nil {
			return struct{}{}, nil
		}
		open = open || len(trailer.Get(bridge.RepeatedTrailer)) > 0
		next = open || late || opaque(last)
		pause, again := g.judge(last, late, trailer)
		if final = !again; final {
			return struct{}{}, retry.Stop(last)
		}
		return struct{}{}, retry.After(pause, last)
	})
	switch {
	case err != nil && !final && ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case open && last != nil && !opaque(last) && !slices.Equal(trailer.Get(replayedMetadata), []string{"true"}):
		return status.Errorf(codes.Unknown, "grpcmw: outcome unknown (tries: %d): %v", tries, last)
	}
	return last
}

// opaque reports whether err leaves the outcome of the call open.
func opaque(err error) bool {
	switch reasonOf(status.Convert(err)) {
	case ReasonInProgress, ReasonIndeterminate, ReasonUnreplayable:
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Unknown, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.DataLoss:
		return true
	}
	return false
}

// reasonOf returns the reason of a refusal by this package, or "".
func reasonOf(s *status.Status) string {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == Domain {
			return info.GetReason()
		}
	}
	return ""
}

// withKey returns ctx with an idempotency key in its outgoing metadata.
func withKey(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	outside := md.Get(gatewayMetadata)
	switch {
	case len(md.Get(keyMetadata)) > 0, len(outside) > 1: // the server refuses several keys
		return ctx
	case len(outside) == 1:
		return metadata.AppendToOutgoingContext(ctx, keyMetadata, outside[0])
	}
	return metadata.AppendToOutgoingContext(ctx, keyMetadata, rand.Text())
}

// try makes the call once. late reports whether the try's own time-out has passed.
func (g *client) try(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts []grpc.CallOption) (late bool, err error) {
	if g.timeout == 0 {
		return false, invoker(ctx, method, req, reply, cc, opts...)
	}
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	err = invoker(bounded, method, req, reply, cc, opts...)
	// The server has the same deadline, and can notice it a moment earlier than the
	// client.
	if end, _ := bounded.Deadline(); status.Code(err) == codes.DeadlineExceeded && time.Until(end) < g.timeout/4 {
		<-bounded.Done()
	}
	return bounded.Err() != nil && ctx.Err() == nil, err
}

// judge reports whether to try again after err, and the minimum pause before the next
// try.
func (g *client) judge(err error, late bool, trailer metadata.MD) (pause time.Duration, again bool) {
	s := status.Convert(err)
	ours := false
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			ours = detail.GetDomain() == Domain
		case *errdetails.RetryInfo:
			pause = max(0, detail.GetRetryDelay().AsDuration())
		}
	}
	again = late || ours && pause > 0 || slices.Contains(g.codes, s.Code())
	switch hints := trailer.Get(bridge.PushbackTrailer); len(hints) {
	case 0:
	case 1:
		ms, err := strconv.ParseUint(hints[0], 10, 31)
		pause, again = time.Duration(ms)*time.Millisecond, again && err == nil
	default: // as proposal A6 of gRPC requires
		again = false
	}
	return pause, again
}
