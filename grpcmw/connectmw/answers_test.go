package connectmw_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/internal/answers"
	"github.com/lockkit/lockkit/grpcmw/internal/orders"
)

func TestMain(m *testing.M) {
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := goleak.Find(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

// soon is a generous deadline for short operations on a busy machine.
const soon = 20 * time.Second

// uncompressed is the option of a client that accepts no compressed responses.
var uncompressed = connect.WithAcceptCompression("gzip", nil, nil)

// clients has the options of connect's clients, by protocol, codec and compression.
var clients = forms()

func forms() map[string][]connect.ClientOption {
	all := map[string][]connect.ClientOption{}
	for protocol, ofProtocol := range map[string]connect.ClientOption{
		"Connect": connect.WithClientOptions(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		for codec, ofCodec := range map[string]connect.ClientOption{"": connect.WithClientOptions(), " JSON": connect.WithProtoJSON()} {
			for compression, ofCompression := range map[string]connect.ClientOption{"": uncompressed, " gzip": connect.WithSendGzip()} {
				all[protocol+codec+compression] = []connect.ClientOption{ofProtocol, ofCodec, ofCompression}
			}
		}
	}
	return all
}

// TestAnswers runs the suite of package answers, for the forms of connect's clients and
// for a client of grpc-go. Only two of connect's forms run outside of the proof, and
// TestProtocols covers all of them.
func TestAnswers(t *testing.T) {
	for name, opts := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "gRPC-Web" && name != "Connect JSON gzip" {
				tally.ProofOnly(t)
			}
			answers.Run(t, func(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...answers.Outer) orders.OrdersClient {
				return newClient(t, open(t, h, rules, outer...), opts...)
			})
		})
	}
	t.Run("grpc-go", func(t *testing.T) {
		t.Parallel()
		answers.Run(t, func(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...answers.Outer) orders.OrdersClient {
			return dial(t, open(t, h, rules, outer...))
		})
	})
}

func open(t *testing.T, h orders.OrdersServer, rules grpcmw.Rules, outer ...answers.Outer) string {
	t.Helper()
	var around []connect.Interceptor
	for _, o := range outer {
		around = append(around, connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
			return func(ctx context.Context, req connect.AnyRequest) (response connect.AnyResponse, err error) {
				_, err = o(ctx, func(ctx context.Context) (any, error) {
					if response, err = next(ctx, req); err != nil {
						return nil, err
					}
					return response.Any(), nil
				})
				if s, ok := status.FromError(err); ok && err != nil && connect.CodeOf(err) == connect.CodeUnknown {
					err = connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
				}
				return response, err
			}
		}))
	}
	chain := connect.WithInterceptors(append(around, connectmw.Interceptor(rules))...)
	return serve(t, connect.NewUnaryHandlerSimple(orders.Orders_Pay_FullMethodName, h.Pay, chain),
		connect.NewUnaryHandlerSimple(orders.Orders_Refund_FullMethodName, h.Refund, chain),
		connect.NewUnaryHandlerSimple(orders.Orders_Show_FullMethodName, h.Show, chain, connect.WithIdempotency(connect.IdempotencyNoSideEffects)))
}

// serve serves the handlers as the methods Pay, Refund and Show, in this order.
func serve(t *testing.T, handlers ...http.Handler) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	for i, h := range handlers {
		mux.Handle([]string{orders.Orders_Pay_FullMethodName, orders.Orders_Refund_FullMethodName, orders.Orders_Show_FullMethodName}[i], h)
	}
	return start(t, mux)
}

// start serves h over HTTP/1 and HTTP/2 until the test is done.
func start(t *testing.T, h http.Handler) (url string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// newHTTP returns a client for HTTP/2, which gRPC needs.
func newHTTP(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func dial(t *testing.T, url string, opts ...grpc.DialOption) orders.OrdersClient {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return orders.NewOrdersClient(conn)
}

// client adapts a client of connect to grpc-go's interface of a client, without streams.
type client struct {
	orders.OrdersClient
	pay, refund, show *connect.Client[orders.Order, orders.Receipt]
}

func newClient(t *testing.T, url string, opts ...connect.ClientOption) *client {
	t.Helper()
	h := newHTTP(t)
	method := func(name string) *connect.Client[orders.Order, orders.Receipt] {
		return connect.NewClient[orders.Order, orders.Receipt](h, url+name, opts...)
	}
	return &client{pay: method(orders.Orders_Pay_FullMethodName), refund: method(orders.Orders_Refund_FullMethodName), show: method(orders.Orders_Show_FullMethodName)}
}

func (c *client) Pay(ctx context.Context, o *orders.Order, opts ...grpc.CallOption) (*orders.Receipt, error) {
	return call(ctx, c.pay, o, opts)
}

func (c *client) Refund(ctx context.Context, o *orders.Order, opts ...grpc.CallOption) (*orders.Receipt, error) {
	return call(ctx, c.refund, o, opts)
}

func (c *client) Show(ctx context.Context, o *orders.Order, opts ...grpc.CallOption) (*orders.Receipt, error) {
	return call(ctx, c.show, o, opts)
}

// call makes a call like a client of grpc-go. It returns the metadata of an error as
// trailer.
func call(ctx context.Context, method *connect.Client[orders.Order, orders.Receipt], o *orders.Order, opts []grpc.CallOption) (*orders.Receipt, error) {
	request := connect.NewRequest(o)
	md, _ := metadata.FromOutgoingContext(ctx)
	for name, values := range md {
		request.Header()[http.CanonicalHeaderKey(name)] = values
	}
	response, err := method.CallUnary(ctx, request)
	var header, trailer metadata.MD
	if own := (*connect.Error)(nil); errors.As(err, &own) {
		trailer, err = metadataOf(own.Meta()), statusOf(own).Err()
	} else if err == nil {
		header, trailer = metadataOf(response.Header()), metadataOf(response.Trailer())
	}
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = trailer
		}
	}
	if err != nil {
		return nil, err
	}
	return response.Msg, nil
}

func metadataOf(h http.Header) metadata.MD {
	md := metadata.MD{}
	for name, values := range h {
		for _, value := range values {
			if strings.HasSuffix(name, "-Bin") {
				data, _ := base64.RawStdEncoding.DecodeString(value)
				value = string(data)
			}
			md.Append(name, value)
		}
	}
	return md
}

// statusOf returns the status that a client of grpc-go would get.
func statusOf(err *connect.Error) *status.Status {
	p := &spb.Status{Code: int32(err.Code()), Message: err.Message()}
	for _, d := range err.Details() {
		p.Details = append(p.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type(), Value: d.Bytes()})
	}
	return status.FromProto(p)
}
