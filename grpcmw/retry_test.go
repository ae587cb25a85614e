package grpcmw_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/retry"
)

// native returns grpc-go's own retry policy. The policy obeys the trailer. Without the
// trailer it tries again after about the time backoff.
func native(backoff string) grpc.DialOption {
	return grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
		"maxAttempts": 5, "initialBackoff": "` + backoff + `", "maxBackoff": "` + backoff + `", "backoffMultiplier": 1,
		"retryableStatusCodes": ["ABORTED", "UNAVAILABLE", "FAILED_PRECONDITION", "INVALID_ARGUMENT"]}}]}`)
}

// arrivals counts the tries that reach the server, and records their keys.
type arrivals struct {
	n    atomic.Int32
	mu   sync.Mutex
	keys []string
}

func (a *arrivals) option() grpc.ServerOption {
	return grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		a.n.Add(1)
		md, _ := metadata.FromIncomingContext(ctx)
		a.mu.Lock()
		a.keys = append(a.keys, md.Get(key)...)
		a.mu.Unlock()
		return next(ctx, req)
	})
}

func TestRetriesOfGRPC(t *testing.T) {
	t.Parallel()

	t.Run("retry policy of grpc-go", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t), arrivals{}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()), seen.option())
		patient := s.dial(native("3600s")) // the retry would be too late without the trailer
		release, answered := s.Hold("order:5"), make(chan reply, 1)
		go func() { answered <- ask(t.Context(), patient.Pay, &Order{Id: "5"}) }()
		eventually(t, "it was refused and came again", func() bool { return seen.n.Load() >= 2 })
		release()
		within(t, "the call is answered", answered).Is(t, "order:5")
	})

	t.Run("without a policy", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t), arrivals{}
		s.open(on(Orders_Pay_FullMethodName, s.Lock()), seen.option())
		s.Hold("order:5")
		s.Call("5").Refused(t, codes.Aborted, grpcmw.ReasonBusy)
		if n := seen.n.Load(); n != 1 {
			t.Errorf("%d tries", n)
		}
	})

	t.Run("refusals for good", func(t *testing.T) {
		t.Parallel()
		s, seen := newShop(t), arrivals{}
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())), seen.option())
		eager := s.dial(native("0.001s"))
		ask(t.Context(), eager.Pay, &Order{Id: "5"}, key, "k").Is(t, "no lease")
		ask(t.Context(), eager.Pay, &Order{Id: "6"}, key, "k").Refused(t, codes.FailedPrecondition, grpcmw.ReasonMismatch)
		ask(t.Context(), eager.Pay, &Order{Id: "5"}).Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		if n := seen.n.Load(); n != 3 {
			t.Errorf("%d tries, want 3", n)
		}
	})
}

// wire cuts the connections of a server on demand.
type wire struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (w *wire) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func TestDroppedReply(t *testing.T) {
	t.Parallel()
	t.Run("lost replies", func(t *testing.T) {
		t.Parallel()
		s, runs, drops, seen := newShop(t), atomic.Int64{}, atomic.Int32{}, arrivals{}
		s.OnPay = counting(&runs)
		w := &wire{}
		s.listen = func(l net.Listener) net.Listener { w.Listener = l; return w }
		dropping := grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			reply, err := next(ctx, req)
			if err == nil && drops.Add(1)%3 != 0 {
				w.cut()
			}
			return reply, err
		})
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())), seen.option(), dropping)
		client := s.dial(grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor()))
		const calls = 10
		for i := range calls {
			r := ask(t.Context(), client.Pay, &Order{Id: "5"})
			if r.Err != nil || r.GetText() != fmt.Sprintf("run %d", i+1) || !r.Replayed() {
				t.Errorf("call %d: got %q, %v, %v", i, r.GetText(), r.Err, r.Trailer)
			}
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(seen.keys)))
		if runs.Load() != calls || seen.n.Load() != 3*calls || len(distinct) != calls {
			t.Errorf("%d runs of %d tries with %d keys, want %d of %d", runs.Load(), seen.n.Load(), len(distinct), calls, 3*calls)
		}
	})

	t.Run("abandoned try with Detached", func(t *testing.T) {
		t.Parallel()
		s, runs, finish := newShop(t), atomic.Int64{}, make(chan struct{})
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			<-finish
			return counting(&runs)(ctx, o)
		}
		seen := arrivals{}
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller(), grpcmw.Detached())), seen.option())
		client := s.dial(grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor(
			grpcmw.TryTimeout(200*time.Millisecond),
			grpcmw.Retry(retry.Policy{Initial: 10 * time.Millisecond, Max: 50 * time.Millisecond, Multiplier: 2, Attempts: 1000}),
		)))
		answered := make(chan reply, 1)
		go func() { answered <- ask(t.Context(), client.Pay, &Order{Id: "5"}) }()
		eventually(t, "it was given up and made again", func() bool { return seen.n.Load() >= 2 })
		close(finish)
		r := within(t, "the call is answered", answered)
		if r.Is(t, "run 1"); runs.Load() != 1 || !r.Replayed() {
			t.Errorf("%d runs, %v", runs.Load(), r.Trailer)
		}
	})
}

// gateway is the name of the metadata in which grpc-gateway sends the header
// Idempotency-Key of an HTTP request.
const gateway = "grpcgateway-idempotency-key"

func TestGateway(t *testing.T) {
	t.Parallel()
	t.Run("quoted key and gateway name", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t), atomic.Int64{}
		s.OnPay = counting(&runs)
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		for _, md := range [][]string{
			{key, "a"}, {key, `"a"`}, {gateway, "a"}, {gateway, `"a"`}, {key, "a", gateway, "a"}, {key, "a", gateway, `"a"`}, {key, `"a"`, gateway, "a"},
			// A proxy may strip these blanks.
			{key, " a "}, {key, ` "a" `}, {gateway, "  a"}, {key, "a ", gateway, ` "a"`},
		} {
			s.Call("5", md...).Is(t, "run 1")
		}
		s.Call("5", key, `a b`).Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		s.Call("5", key, `"a b\"\\"`).Is(t, "run 2")
		s.Call("5", key, `" a b "`).Is(t, "run 3") // blanks inside quotes are part of the key
		for name, md := range map[string][]string{
			"missing": nil, "empty": {key, ""}, "empty, quoted": {key, `""`}, "twice": {key, "a", key, "a"},
			"two names, two keys": {key, "a", gateway, "b"}, "two names, one of them empty": {key, "a", gateway, ""}, "two by one name": {key, "a", gateway, "a", gateway, "a"},
			"a list": {key, `"a", "b"`}, "a parameter": {key, `"a";q=1`}, "not closed": {key, `"a`}, "bad escape": {key, `"a\b"`},
			"a space": {key, "a b"}, "blanks only": {key, "  "}, "blanks only, twice": {key, " ", gateway, " "},
			"a comma": {key, "a,b"}, "a semicolon": {key, "a;b"}, "too long": {key, strings.Repeat("k", 256)}, "ends in an escape": {key, `"a\`}, "a quote within": {key, `a"b`},
		} {
			if r := s.Call("5", md...); status.Code(r.Err) != codes.InvalidArgument {
				t.Errorf("%s: got %v, %v", name, r.Receipt, r.Err)
			}
		}
		for i, char := range []string{"k", ":", "%", "{", "="} {
			for range 2 {
				s.Call("5", key, strings.Repeat(char, 255)).Is(t, fmt.Sprintf("run %d", 4+i))
			}
		}
	})
	t.Run("client interceptor behind a gateway", func(t *testing.T) {
		t.Parallel()
		s, runs := newShop(t), atomic.Int64{}
		s.OnPay = counting(&runs)
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
		client := s.dial(grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor()))
		for i, md := range [][]string{{gateway, "a"}, {gateway, `"a"`}, {key, "a", gateway, "a"}, {key, "a", gateway, `"a"`}, {key, "a"}} {
			r := ask(t.Context(), client.Pay, &Order{Id: "5"}, md...)
			if r.Is(t, "run 1"); r.Replayed() != (i > 0) {
				t.Errorf("%q: replayed is %v", md, r.Replayed())
			}
		}
		ask(t.Context(), client.Pay, &Order{Id: "5"}, gateway, "b").Is(t, "run 2")
		for _, md := range [][]string{{key, "a", gateway, "b"}, {gateway, "a", gateway, "b"}, {gateway, ""}} {
			ask(t.Context(), client.Pay, &Order{Id: "5"}, md...).Refused(t, codes.InvalidArgument, grpcmw.ReasonKeyInvalid)
		}
	})
}
