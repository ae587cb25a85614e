package connectmw

import (
	"context"
	"maps"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// Interceptor returns an interceptor that applies rules to handlers. A key of rules is
// the name of a procedure, such as ordersconnect.OrdersPayProcedure. The interceptor
// has no effect on procedures without rules, or on a client.
//
// Mount the interceptor inside the interceptors that can refuse a call, such as
// authentication and validation. Mount it also inside connect.WithRecover, which
// belongs before the connect.WithInterceptors of this interceptor. Otherwise a
// recovered panic would look like an ordinary error to once.AtMostOnce. A stream holds
// its lock as with grpcmw.StreamServerInterceptor.
//
// Interceptor panics if a procedure is not of the form "/package.Service/Method" or has
// no rules, or if a rule is nil. Later changes of rules have no effect.
func Interceptor(rules grpcmw.Rules) connect.Interceptor {
	return &interceptor{
		rules:  maps.Clone(rules),
		unary:  grpcmw.UnaryServerInterceptor(rules),
		stream: grpcmw.StreamServerInterceptor(rules),
	}
}

type interceptor struct {
	rules  grpcmw.Rules
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

func (i *interceptor) covers(spec connect.Spec) bool {
	return !spec.IsClient && len(i.rules[spec.Procedure]) > 0
}

func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec, peer := req.Spec(), req.Peer()
		info, ok := connect.CallInfoForHandlerContext(ctx)
		if ok && spec.Procedure == "" { // an outer interceptor has made the request
			spec, peer = info.Spec(), info.Peer()
		}
		if !i.covers(spec) {
			return next(ctx, req)
		}
		x := &exchange{request: req, next: next, info: info, sending: sending{method: spec.Procedure, protocol: peer.Protocol}}
		x.outer, _ = ctx.Value(exchangeKey{}).(*exchange)
		ctx = metadata.NewIncomingContext(ctx, metadataOf(req.Header()))
		reply, err := i.unary(grpc.NewContextWithServerTransportStream(ctx, x), req.Any(), &grpc.UnaryServerInfo{FullMethod: x.method}, x.handle)
		if err != nil {
			return nil, x.fail(err)
		}
		return x.respond(reply), nil
	}
}

func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// exchange is a unary call. It is the grpc.ServerTransportStream on which the rules set
// metadata. The handler gets the call as a request of connect.
type exchange struct {
	sending
	request  connect.AnyRequest
	next     connect.UnaryFunc
	info     connect.CallInfo    // nil if the handler has none
	outer    *exchange           // the exchange of an outer Interceptor, or nil
	response connect.AnyResponse // the handler's response, returned or committed, or nil
	failure  error               // the handler's error
}

// exchangeKey is the context key of the innermost exchange.
type exchangeKey struct{}

// handle runs the handler, and returns its message.
func (x *exchange) handle(ctx context.Context, _ any) (any, error) {
	hideOwner(ctx, x.request.Header())
	if x.info != nil {
		hideOwner(ctx, x.info.RequestHeader())
	}
	response, err := x.next(context.WithValue(ctx, exchangeKey{}, x), x.request)
	if err != nil {
		x.failure = err
		return nil, withStatus(err)
	}
	x.response = response
	return response.Any(), nil
}

// Returned returns the metadata of the handler's response or error.
func (x *exchange) Returned() (header, trailer metadata.MD) {
	header, trailer = metadata.MD{}, metadata.MD{}
	if x.failure != nil {
		// A wire error comes from a call that the handler made. The metadata of such a
		// call is not sent.
		if !connect.IsWireError(x.failure) {
			addMetadata(trailer, metaOf(x.failure))
		}
	} else if x.response != nil {
		addMetadata(header, x.response.Header())
		addMetadata(trailer, x.response.Trailer())
	}
	if x.info != nil {
		addMetadata(header, x.info.ResponseHeader())
		addMetadata(trailer, x.info.ResponseTrailer())
	}
	return header, trailer
}

// respond returns a response with the message reply and the metadata that the rules have
// set. If the handler's own response has this message, respond returns that response.
func (x *exchange) respond(reply any) connect.AnyResponse {
	response := x.response
	if response == nil {
		response = connect.NewResponse(&emptypb.Empty{})
	}
	if response.Any() != reply {
		response = &kept{AnyResponse: response, message: reply}
	}
	header, trailer := x.set()
	addHeaders(response.Header(), header)
	addHeaders(response.Trailer(), trailer)
	return response
}

// kept is a response with a stored message. Outside connect, no code can make a
// *connect.Response whose type is known only at run time. connect and other
// interceptors get the message by Any.
type kept struct {
	connect.AnyResponse
	message any
}

func (r *kept) Any() any { return r.message }

// sending records the metadata that rules set.
type sending struct {
	method, protocol string

	mu              sync.Mutex
	header, trailer metadata.MD
}

func (s *sending) Method() string { return s.method }

func (s *sending) SetHeader(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.header = metadata.Join(s.header, md)
	return nil
}

func (s *sending) SendHeader(md metadata.MD) error { return s.SetHeader(md) }

func (s *sending) SetTrailer(md metadata.MD) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}

func (s *sending) set() (header, trailer metadata.MD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header, s.trailer
}

var _ bridge.Stream = (*exchange)(nil)
