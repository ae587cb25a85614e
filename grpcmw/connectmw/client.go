package connectmw

import (
	"context"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/internal/bridge"
)

// keyHeaders are the headers that can contain the idempotency key of a call.
var keyHeaders = []string{"idempotency-key", "grpcgateway-idempotency-key"}

// ClientInterceptor returns an interceptor that gives each unary call one idempotency
// key for all its tries, and tries again like grpcmw.UnaryClientInterceptor.
// ClientInterceptor has the same options and limits. The default key is random. A
// caller can set a key:
//
//	request.Header().Set("Idempotency-Key", key)
//
// Mount the interceptor as the outermost interceptor of the client. On streams, and on
// a handler, the interceptor has no effect. ClientInterceptor panics if an option is
// nil.
func ClientInterceptor(opts ...grpcmw.ClientOption) connect.Interceptor {
	call := grpcmw.UnaryClientInterceptor(slices.Clone(opts)...)
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if !req.Spec().IsClient {
				return next(ctx, req)
			}
			before := make(map[string][]string)
			for _, name := range append(keyHeaders, bridge.OwnerMetadata) {
				before[name] = slices.Clone(req.Header().Values(name))
			}
			defer func() { // a caller may use the request for another call
				for name, values := range before {
					req.Header().Del(name)
					for _, v := range values {
						req.Header().Add(name, v)
					}
				}
			}()
			outgoing, _ := metadata.FromOutgoingContext(ctx)
			var response connect.AnyResponse
			try := func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) (err error) {
				md, _ := metadata.FromOutgoingContext(ctx)
				for _, name := range append(keyHeaders, bridge.OwnerMetadata) {
					if values := md.Get(name); len(values) > 0 {
						req.Header().Del(name)
						addHeaders(req.Header(), metadata.MD{name: values})
					}
				}
				// The metadata is for this call only, and inner interceptors can make
				// calls by grpc-go.
				var sent atomic.Int64 // net/http repeats a request if its connection breaks
				ctx = httptrace.WithClientTrace(metadata.NewOutgoingContext(ctx, outgoing), &httptrace.ClientTrace{
					WroteHeaderField: func(name string, _ []string) {
						if strings.EqualFold(name, keyHeaders[0]) {
							sent.Add(1)
						}
					},
				})
				if response, err = next(ctx, req); err == nil {
					return nil
				}
				for _, o := range opts {
					if o, ok := o.(grpc.TrailerCallOption); ok {
						*o.TrailerAddr = metadata.Join(metadataOf(metaOf(err)))
						if sent.Load() > 1 {
							o.TrailerAddr.Set(bridge.RepeatedTrailer, "true")
						}
					}
				}
				return withStatus(err)
			}
			err := call(metadata.NewOutgoingContext(ctx, keyOf(req)), req.Spec().Procedure, req.Any(), nil, nil, try)
			if err != nil {
				return nil, withCode(err)
			}
			return response, nil
		}
	})
}

func keyOf(req connect.AnyRequest) metadata.MD {
	md := metadata.MD{}
	for _, name := range keyHeaders {
		if values := req.Header().Values(name); len(values) > 0 {
			md.Set(name, values...)
		}
	}
	return md
}
