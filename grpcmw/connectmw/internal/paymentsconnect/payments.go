// Package paymentsconnect has the code that protoc-gen-connect-go would generate for the
// service of examples/grpc. The code in README.md uses it.
package paymentsconnect

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/examples/grpc/chargepb"
)

// PaymentsName is the full name of the service. PaymentsChargeProcedure is the full
// name of its method.
const (
	PaymentsName            = "lockkit.examples.charge.Payments"
	PaymentsChargeProcedure = "/lockkit.examples.charge.Payments/Charge"
)

// PaymentsHandler is the service.
type PaymentsHandler interface {
	Charge(ctx context.Context, r *connect.Request[chargepb.ChargeRequest]) (*connect.Response[chargepb.Receipt], error)
}

// NewPaymentsHandler returns the path of the service, and h as its HTTP handler.
func NewPaymentsHandler(h PaymentsHandler, opts ...connect.HandlerOption) (path string, handler http.Handler) {
	return "/" + PaymentsName + "/", connect.NewUnaryHandler(PaymentsChargeProcedure, h.Charge, opts...)
}

// PaymentsClient is a client of the service.
type PaymentsClient struct {
	*connect.Client[chargepb.ChargeRequest, chargepb.Receipt]
}

// NewPaymentsClient returns a client of the service at url.
func NewPaymentsClient(c connect.HTTPClient, url string, opts ...connect.ClientOption) PaymentsClient {
	return PaymentsClient{connect.NewClient[chargepb.ChargeRequest, chargepb.Receipt](c, url+PaymentsChargeProcedure, opts...)}
}

// Charge calls the method.
func (c PaymentsClient) Charge(ctx context.Context, r *connect.Request[chargepb.ChargeRequest]) (*connect.Response[chargepb.Receipt], error) {
	return c.CallUnary(ctx, r)
}
