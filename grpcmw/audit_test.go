package grpcmw_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/grpcmw"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	const service = "/lockkit.grpcmw.test.Tills/"
	s := newShop(t)
	server := grpc.NewServer()
	RegisterTillsServer(server, &tills{handlers: &s.Handlers})
	healthpb.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)

	// audit checks that exactly these methods are reported, with these texts.
	audit := func(t *testing.T, rules grpcmw.Rules, want map[string]string) {
		t.Helper()
		err := grpcmw.Audit(server, rules)
		if len(want) == 0 {
			if err != nil {
				t.Errorf("got %v", err)
			}
			return
		}
		if !errors.Is(err, core.ErrInvalid) {
			t.Fatalf("got %v", err)
		}
		lines := strings.Split(err.Error(), "\n")
		for method, fault := range want {
			found := 0
			for _, line := range lines {
				if strings.Contains(line, " "+method+": ") && strings.Contains(line, fault) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %q is said %d times", method, fault, found)
			}
		}
		if len(lines) != len(want) {
			t.Errorf("%d complaints, want %d: %v", len(lines), len(want), err)
		}
	}
	const forgotten, ignored = "may have side effects and has no rule", "its .proto has a guard, and there is no rule"

	t.Run("method without a rule", func(t *testing.T) {
		t.Parallel()
		audit(t, s.annotated(), map[string]string{service + "Void": forgotten, service + "Scan": forgotten})
	})
	t.Run("rules in Go and None", func(t *testing.T) {
		t.Parallel()
		rules := s.annotated()
		maps.Copy(rules, grpcmw.Rules{
			Tills_Void_FullMethodName: {s.Lock()}, Tills_Scan_FullMethodName: {grpcmw.None()}, Tills_Pay_FullMethodName: {grpcmw.None()},
		})
		audit(t, rules, nil)
	})
	t.Run("guard without a rule", func(t *testing.T) {
		t.Parallel()
		audit(t, nil, map[string]string{
			service + "Pay": ignored, service + "Transfer": ignored, service + "Settle": ignored, service + "Watch": ignored, service + "Peek": ignored,
			service + "Void": forgotten, service + "Scan": forgotten,
		})
	})
	t.Run("unknown method or service", func(t *testing.T) {
		t.Parallel()
		rules := s.annotated()
		maps.Copy(rules, grpcmw.Rules{
			service + "Payy": {s.Lock()}, Orders_Pay_FullMethodName: {s.Lock()},
			Tills_Void_FullMethodName: {grpcmw.None()}, Tills_Scan_FullMethodName: {grpcmw.None()},
		})
		audit(t, rules, map[string]string{
			service + "Payy":          "no such method, it has: Pay, Peek, Ping, Scan, Settle, Show, Transfer, Void, Watch",
			Orders_Pay_FullMethodName: "no such service, it has: grpc.health.v1.Health, grpc.reflection.v1.ServerReflection, grpc.reflection.v1alpha.ServerReflection, lockkit.grpcmw.test.Tills",
		})
	})
	t.Run("rules of a called service", func(t *testing.T) {
		t.Parallel()
		caller := grpc.NewServer()
		RegisterOrdersServer(caller, &s.Handlers)
		rules := s.annotated()
		for _, method := range []string{
			Orders_Pay_FullMethodName, Orders_Refund_FullMethodName, Orders_Watch_FullMethodName, Orders_Upload_FullMethodName, Orders_Chat_FullMethodName,
		} {
			rules[method] = []grpcmw.Rule{s.Lock()}
		}
		if err := grpcmw.Audit(caller, rules); err != nil {
			t.Error(err)
		}
	})
	t.Run("service without a file", func(t *testing.T) {
		t.Parallel()
		plain := grpc.NewServer()
		plain.RegisterService(&grpc.ServiceDesc{ServiceName: "a.B", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "C"}}}, s)
		if err := grpcmw.Audit(plain, nil); err == nil || !strings.Contains(err.Error(), "/a.B/C: it may have side effects") {
			t.Errorf("got %v", err)
		}
		if err := grpcmw.Audit(plain, on("/a.B/C", s.Lock())); err != nil {
			t.Error(err)
		}
	})
	if err := grpcmw.Audit(nil, nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %v for no server", err)
	}
}

func TestServerOptions(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.OnWatch = func(_ *Order, out grpc.ServerStreamingServer[Receipt]) error {
		t.Error("the stream ran")
		return nil
	}
	authenticated := make(chan bool, 1)
	first := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		authenticated <- s.isFree("order:6")
		return next(ctx, req)
	})
	s.open(grpcmw.Rules{Orders_Pay_FullMethodName: {s.Lock()}, Orders_Watch_FullMethodName: {s.Lock()}}, first)
	s.Call("6").Is(t, "order:6")
	if !within(t, "the first interceptor has run", authenticated) {
		t.Error("the lock was taken before the interceptor of an earlier option ran")
	}
	s.Hold("order:5")
	s.Call("5").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
	in, err := s.Client.Watch(t.Context(), &Order{Id: "5"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Recv()
	refusal(t, err, codes.Aborted, grpcmw.ReasonBusy)
	panics(t, "/a.B/C has no rules", func() { grpcmw.ServerOptions(on("/a.B/C")) })
}
