package sdktest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/otellock"
	"github.com/lockkit/lockkit/core/testserver"
)

func TestTraces(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)

	t.Run("no secrets in spans and series", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server, otellock.WithAllAcquires(), otellock.WithHoldSpans())
		defer s.tel.Watch(s.locks)()
		ctx, parent := s.tracers.Tracer("test").Start(t.Context(), "request")

		const key = "order:s3cret-customer"
		lease, err := s.locks.Acquire(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		secrets := []string{"s3cret", lease.Owner(), fmt.Sprint(lease.Token()), lease.ID()}
		nested, err := s.locks.Acquire(lease.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, nested.Release(ctx), nil)
		_, err = s.locks.TryAcquire(ctx, key)
		wantErr(t, err, core.ErrBusy)
		s.proxy.Down()
		_, err = s.locks.TryAcquire(ctx, "order:s3cret-other")
		wantErr(t, err, core.ErrUnavailable)
		s.proxy.Up()
		s.wipe(t)
		wantErr(t, lease.Release(ctx), core.ErrLost)
		reply := s.proxy.Inject(testserver.Match{Arg: "s3cret", Times: -1}, testserver.ErrorReply("ERR s3cret is not allowed here"))
		_, err = s.locks.TryAcquire(ctx, "order:s3cret-third")
		reply.Await(t)
		if err == nil {
			t.Error("what the server refuses is had")
		}
		parent.End()

		text := fmt.Sprint(s.points(t))
		ended := s.spans.Ended()
		for _, span := range ended {
			text += fmt.Sprintf("\n%s %v %v %v %v", span.Name(), span.Attributes(), span.Status(), span.Events(), span.Links())
		}
		if len(ended) != 7 { // four acquires, two leases, the request
			t.Errorf("there are %d spans, want 7: %s", len(ended), text)
		}
		for _, secret := range secrets {
			if secret == "" || strings.Contains(text, secret) {
				t.Errorf("%q is in it: %s", secret, text)
			}
		}
	})

	t.Run("span of an acquire", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server)
		other := try(t, s.others, "order:1")
		ctx, parent := s.tracers.Tracer("test").Start(t.Context(), "request")
		before := time.Now()
		go func() {
			<-s.taken
			release(t, other, nil)
		}()
		lease, err := s.locks.Acquire(ctx, "order:1")
		if err != nil {
			t.Fatal(err)
		}
		after := time.Now()
		release(t, lease, nil)
		parent.End()
		span := one(t, s, "acquire order")
		if span.StartTime().Before(before.Add(-time.Millisecond)) || span.EndTime().After(after) || !span.EndTime().After(span.StartTime()) {
			t.Errorf("it lasts from %v to %v, the acquire from %v to %v", span.StartTime(), span.EndTime(), before, after)
		}
		if span.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Error("its parent is another one")
		}
		if span.Status().Code != codes.Unset {
			t.Errorf("its status is %v", span.Status())
		}
	})

	t.Run("parent that is not recorded", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, server, otellock.WithAllAcquires(), otellock.WithHoldSpans())
		never := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
		for _, ctx := range []context.Context{t.Context(), func() context.Context {
			ctx, _ := never.Tracer("test").Start(t.Context(), "request")
			return ctx
		}()} {
			if err := s.locks.Do(ctx, "order:1", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(s.spans.Ended()); n != 0 {
			t.Errorf("there are %d", n)
		}
	})
}

func one(t *testing.T, s *stage, name string) (found trace.ReadOnlySpan) {
	t.Helper()
	n := 0
	for _, span := range s.spans.Ended() {
		if span.Name() == name {
			found = span
			n++
		}
	}
	if n != 1 {
		t.Fatalf("there are %d spans %q", n, name)
	}
	return found
}
