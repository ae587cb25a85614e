package grpcmw_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/retry"
)

// answer is the response of a peer to one try.
type answer struct {
	err      error
	pushback []string
	hang     bool // until the try's context is done
	replayed bool
}

// peer is a server in memory. It returns its answers one after the other, and then
// repeats the last answer.
type peer struct {
	answers []answer
	keys    []string
	times   []time.Duration // since the first try
	began   time.Time
}

func (p *peer) invoke(ctx context.Context, _ string, _, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
	if len(p.times) == 0 {
		p.began = time.Now()
	}
	p.times = append(p.times, time.Since(p.began))
	md, _ := metadata.FromOutgoingContext(ctx)
	p.keys = append(p.keys, md.Get(key)...)
	a := p.answers[min(len(p.times), len(p.answers))-1]
	if a.hang {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	for _, o := range opts {
		if o, ok := o.(grpc.TrailerCallOption); ok {
			*o.TrailerAddr = metadata.MD{pushback: a.pushback}
			if a.replayed {
				o.TrailerAddr.Set("idempotent-replayed", "true")
			}
		}
	}
	if a.err == nil {
		reply.(*Receipt).Text = "ok"
	}
	return a.err
}

// refusing returns the error of a rule, with a hint if hint is positive.
func refusing(code codes.Code, domain string, hint time.Duration) error {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Domain: domain, Reason: "R"}}
	if hint > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(hint)})
	}
	s, err := status.New(code, "refused").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func TestClientTries(t *testing.T) {
	t.Parallel()
	const second = time.Second
	busy := answer{err: refusing(codes.Aborted, grpcmw.Domain, second)}
	lost := answer{err: status.Error(codes.Unavailable, "")}
	quick := grpcmw.Retry(retry.Policy{Initial: 10 * time.Millisecond, Attempts: 4})
	for name, c := range map[string]struct {
		answers  []answer
		opts     []grpcmw.ClientOption
		deadline time.Duration
		tries    int
		code     codes.Code
		gap      time.Duration // the minimum pause between tries
		took     time.Duration // the maximum time of the whole call
	}{
		"a reply ends it":                    {answers: []answer{{}}, tries: 1},
		"busy lock with RetryInfo":           {answers: []answer{busy, busy, {}}, tries: 3, gap: second},
		"trailer without RetryInfo":          {answers: []answer{{err: refusing(codes.Unavailable, "", 0), pushback: []string{"700"}}, {}}, tries: 2, gap: 700 * time.Millisecond},
		"negative trailer ends it":           {answers: []answer{{err: busy.err, pushback: []string{"-1"}}}, tries: 1, code: codes.Aborted},
		"two trailer values end it":          {answers: []answer{{err: busy.err, pushback: []string{"1", "2"}}}, tries: 1, code: codes.Aborted},
		"a trailer text ends it":             {answers: []answer{{err: busy.err, pushback: []string{"soon"}}}, tries: 1, code: codes.Aborted},
		"UNAVAILABLE is tried again":         {answers: []answer{{err: status.Error(codes.Unavailable, "")}, {}}, tries: 2},
		"ABORTED of another service ends it": {answers: []answer{{err: refusing(codes.Aborted, "other.example", second)}}, tries: 1, code: codes.Aborted},
		"ABORTED without a hint ends it":     {answers: []answer{{err: refusing(codes.Aborted, grpcmw.Domain, 0)}}, tries: 1, code: codes.Aborted},
		"RetryCodes adds ABORTED":            {answers: []answer{{err: refusing(codes.Aborted, "other.example", 0)}, {}}, opts: []grpcmw.ClientOption{grpcmw.RetryCodes(codes.Aborted)}, tries: 2},
		"RetryCodes leaves UNAVAILABLE out":  {answers: []answer{{err: status.Error(codes.Unavailable, "")}}, opts: []grpcmw.ClientOption{grpcmw.RetryCodes()}, tries: 1, code: codes.Unavailable},
		"refusal with hint without codes":    {answers: []answer{busy, {}}, opts: []grpcmw.ClientOption{grpcmw.RetryCodes()}, tries: 2, gap: second},
		"other errors end it":                {answers: []answer{{err: status.Error(codes.InvalidArgument, "")}}, tries: 1, code: codes.InvalidArgument},
		"attempts of the policy end it":      {answers: []answer{busy}, opts: []grpcmw.ClientOption{quick}, tries: 4, code: codes.Aborted, gap: second},
		"None is one try":                    {answers: []answer{busy}, opts: []grpcmw.ClientOption{grpcmw.Retry(retry.None)}, tries: 1, code: codes.Aborted},
		"no pause goes beyond the deadline":  {answers: []answer{busy}, deadline: 2500 * time.Millisecond, opts: []grpcmw.ClientOption{quick}, tries: 3, code: codes.Aborted, took: 2 * second},
		"hung try ends with the deadline":    {answers: []answer{{hang: true}}, deadline: second, tries: 1, code: codes.DeadlineExceeded, took: second},
		"hung try with TryTimeout":           {answers: []answer{{hang: true}, {}}, opts: []grpcmw.ClientOption{grpcmw.TryTimeout(second)}, deadline: time.Minute, tries: 2, gap: second},
		"refused after a lost try":           {answers: []answer{lost, {err: status.Error(codes.Unauthenticated, "")}}, tries: 2, code: codes.Unknown},
		"refused after a hung try":           {answers: []answer{{hang: true}, {err: status.Error(codes.NotFound, "")}}, opts: []grpcmw.ClientOption{grpcmw.TryTimeout(second)}, tries: 2, code: codes.Unknown},
		"busy after a lost try":              {answers: []answer{lost, busy}, opts: []grpcmw.ClientOption{quick}, tries: 4, code: codes.Unknown},
		"refused after a busy try":           {answers: []answer{busy, {err: status.Error(codes.Unauthenticated, "")}}, tries: 2, code: codes.Unauthenticated},
		"refused in the first try":           {answers: []answer{{err: status.Error(codes.Unauthenticated, "")}}, tries: 1, code: codes.Unauthenticated},
		"replayed after a lost try":          {answers: []answer{lost, {err: status.Error(codes.NotFound, ""), replayed: true}}, tries: 2, code: codes.NotFound},
		"INTERNAL after a lost try":          {answers: []answer{lost, {err: status.Error(codes.Internal, "")}}, tries: 2, code: codes.Internal},
		"exceeded deadline ends it":          {answers: []answer{{err: status.Error(codes.DeadlineExceeded, "")}}, opts: []grpcmw.ClientOption{grpcmw.TryTimeout(second)}, tries: 1, code: codes.DeadlineExceeded},
		"other methods pass":                 {answers: []answer{{err: status.Error(codes.Unavailable, "")}}, opts: []grpcmw.ClientOption{grpcmw.Methods("/a/b")}, tries: 1, code: codes.Unavailable},
		"named methods are tried again":      {answers: []answer{{err: status.Error(codes.Unavailable, "")}, {}}, opts: []grpcmw.ClientOption{grpcmw.Methods("/a/b"), grpcmw.Methods(Orders_Pay_FullMethodName)}, tries: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, start := t.Context(), time.Now()
				if c.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				p, out := peer{answers: c.answers}, new(Receipt)
				err := grpcmw.UnaryClientInterceptor(c.opts...)(ctx, Orders_Pay_FullMethodName, nil, out, nil, p.invoke)
				if status.Code(err) != c.code || len(p.times) != c.tries || (out.GetText() == "ok") != (err == nil) {
					t.Errorf("got %v after %d tries, want %v after %d", err, len(p.times), c.code, c.tries)
				}
				for i := 1; i < len(p.times); i++ {
					if gap := p.times[i] - p.times[i-1]; gap < c.gap {
						t.Errorf("try %d came after %v, want %v at least", i+1, gap, c.gap)
					}
				}
				if took := time.Since(start); c.took > 0 && took > c.took {
					t.Errorf("it took %v, want %v at most", took, c.took)
				}
				if distinct := slices.Compact(slices.Clone(p.keys)); len(distinct) > 1 {
					t.Errorf("the tries had several keys: %v", distinct)
				}
			})
		})
	}

	t.Run("canceled between tries and before", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := peer{answers: []answer{busy}}
			time.AfterFunc(1500*time.Millisecond, cancel)
			intercept := grpcmw.UnaryClientInterceptor(quick)
			for tries := range 2 {
				if err := intercept(ctx, "/a/b", nil, nil, nil, p.invoke); status.Code(err) != codes.Canceled || len(p.times) > 2 {
					t.Errorf("call %d: got %v after %d tries", tries, err, len(p.times))
				}
			}
		})
	})
}

func TestClientKey(t *testing.T) {
	t.Parallel()

	t.Run("key of each call", func(t *testing.T) {
		t.Parallel()
		intercept, p := grpcmw.UnaryClientInterceptor(), peer{answers: []answer{{}}}
		for _, ctx := range []context.Context{
			t.Context(), t.Context(),
			metadata.AppendToOutgoingContext(t.Context(), key, "mine"), metadata.NewOutgoingContext(t.Context(), metadata.Pairs("Idempotency-Key", "mine")),
			metadata.AppendToOutgoingContext(t.Context(), gateway, "mine"), metadata.AppendToOutgoingContext(t.Context(), key, "mine", gateway, "other"),
		} {
			if err := intercept(ctx, "/a/b", nil, new(Receipt), nil, p.invoke); err != nil {
				t.Error(err)
			}
		}
		if k := p.keys; len(k) != 6 || len(k[0]) < 22 || k[0] == k[1] || slices.ContainsFunc(k[2:], func(k string) bool { return k != "mine" }) {
			t.Errorf("the keys are %q", k)
		}
	})

	t.Run("own trailer option of caller", func(t *testing.T) {
		t.Parallel()
		p, trailer := peer{answers: []answer{{pushback: []string{"7"}}}}, metadata.MD{}
		err := grpcmw.UnaryClientInterceptor()(t.Context(), "/a/b", nil, new(Receipt), nil, p.invoke, grpc.Trailer(&trailer))
		if err != nil || len(trailer.Get(pushback)) != 1 {
			t.Errorf("got %v, %v", err, trailer)
		}
	})

	t.Run("error that is no status", func(t *testing.T) {
		t.Parallel()
		own := errors.New("own")
		p := peer{answers: []answer{{err: own}}}
		if err := grpcmw.UnaryClientInterceptor()(t.Context(), "/a/b", nil, new(Receipt), nil, p.invoke); err != own {
			t.Errorf("got %v", err)
		}
	})

	t.Run("bad options panic", func(t *testing.T) {
		t.Parallel()
		panics(t, "an option is nil", func() { grpcmw.UnaryClientInterceptor(nil) })
		panics(t, "StreamClientInterceptor: an option is nil", func() { grpcmw.StreamClientInterceptor(nil) })
		for name, o := range map[string]grpcmw.ClientOption{
			"Retry": grpcmw.Retry(retry.None), "RetryCodes": grpcmw.RetryCodes(), "TryTimeout": grpcmw.TryTimeout(time.Second),
		} {
			panics(t, name+" is an option of UnaryClientInterceptor", func() { grpcmw.StreamClientInterceptor(o) })
		}
		panics(t, "Retry", func() { grpcmw.Retry(retry.Policy{Jitter: 2}) })
		panics(t, "Methods", func() { grpcmw.Methods("Pay") })
		panics(t, "TryTimeout", func() { grpcmw.TryTimeout(0) })
	})
}
