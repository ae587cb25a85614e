package connectmw_test

import (
	"context"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/grpc/chargepb"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw"
	"github.com/lockkit/lockkit/grpcmw/connectmw/internal/paymentsconnect"
)

// mount has the code of the server in README.md.
func mount(mux *http.ServeMux, locks *core.Locker, payments paymentsconnect.PaymentsHandler, authenticate connect.Interceptor, callerOf func(context.Context) (string, error)) error {
	runs, err := once.New(locks)
	if err != nil {
		return err
	}
	// Your authentication middleware sets the caller.
	caller := func(ctx context.Context, _ string, _ any) (string, error) { return callerOf(ctx) }
	rules := grpcmw.Rules{paymentsconnect.PaymentsChargeProcedure: {
		grpcmw.Idempotent(runs, caller), grpcmw.Lock(locks, "account", grpcmw.Field("account"), grpcmw.Acquire(core.Wait(time.Second)))}}
	if err := grpcmw.Audit(connectmw.Services(paymentsconnect.PaymentsName), rules); err != nil {
		return err // a misspelled or forgotten method is unguarded
	}
	mux.Handle(paymentsconnect.NewPaymentsHandler(payments, connect.WithInterceptors(authenticate, connectmw.Interceptor(rules))))
	return nil
}

// newPayments has the code of the client in README.md.
func newPayments(url string) paymentsconnect.PaymentsClient {
	client := paymentsconnect.NewPaymentsClient(http.DefaultClient, url, connect.WithInterceptors(connectmw.ClientInterceptor()))
	return client
}

type charges struct{ n int64 }

func (c *charges) Charge(context.Context, *connect.Request[chargepb.ChargeRequest]) (*connect.Response[chargepb.Receipt], error) {
	c.n++
	return connect.NewResponse(&chargepb.Receipt{Cents: c.n}), nil
}

func TestREADME(t *testing.T) {
	t.Parallel()
	mux, made := http.NewServeMux(), &charges{}
	none := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc { return next })
	if err := mount(mux, newLocker(t), made, none, func(context.Context) (string, error) { return "acme", nil }); err != nil {
		t.Fatal(err)
	}
	url := start(t, mux)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	r := connect.NewRequest(&chargepb.ChargeRequest{Account: "5"})
	r.Header().Set("Idempotency-Key", "k")
	for range 2 {
		if reply, err := newPayments(url).Charge(t.Context(), r); err != nil || reply.Msg.GetCents() != 1 || made.n != 1 {
			t.Errorf("got %v, %v after %d runs, want the first", reply, err, made.n)
		}
	}

	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	have := strings.Join(lines, "\n")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, b := range blocks {
		for _, line := range strings.Split(b[1], "\n") {
			if line = strings.TrimSpace(line); !strings.Contains(have, "\n"+line+"\n") && line != "" {
				t.Errorf("README.md has %q, which is not tested", line)
			}
		}
	}
	if len(blocks) < 2 {
		t.Errorf("README.md has %d blocks of code", len(blocks))
	}
}
