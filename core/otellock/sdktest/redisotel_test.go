package sdktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRedisTraces checks that with WithDBStatement(false) the traces of a Locker's
// client contain no key, owner, token or answer. Keys can be customers' data, and a
// process that knows an owner can join the owner's holds.
func TestRedisTraces(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, opts := range map[string][]redisstore.Option{"usual keys": nil, "plain keys": {redisstore.WithPlainKeys()}} {
		t.Run(name+" with the option", func(t *testing.T) {
			t.Parallel()
			secrets, text := traced(t, server, opts, redisotel.WithDBStatement(false))
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in it: %s", secret, text)
				}
			}
		})
		// This case shows that the case above fails without the option.
		t.Run(name+" without the option", func(t *testing.T) {
			t.Parallel()
			secrets, text := traced(t, server, opts)
			if !strings.Contains(text, secrets[0]) {
				t.Errorf("%q is not in it: is the option needed no more? %s", secrets[0], text)
			}
		})
	}
}

// traced acquires, extends, loses and releases locks on a client with tracing, and
// finds a key busy. If the store has records, traced also makes a call of package once.
// It returns the secrets, a key first, and the text of all spans.
func traced(t *testing.T, server *testserver.Redis, how []redisstore.Option, opts ...redisotel.TracingOption) (secrets []string, text string) {
	t.Helper()
	s := newStage(t, server)
	client := testclient.Redis(t, s.proxy.Addr)
	if err := redisotel.InstrumentTracing(client, append(opts, redisotel.WithTracerProvider(s.tracers))...); err != nil {
		t.Fatal(err)
	}
	store, err := redisstore.New(client, append(how, redisstore.WithPrefix(s.prefix))...)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	locks, err := core.New(store, core.WithObserver(s.tel))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	ctx, parent := s.tracers.Tracer("test").Start(t.Context(), "request")
	const key, answer = "order:s3cret-customer", "s3cret-answer"

	lease, err := locks.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, lease.Extend(ctx, time.Minute), nil)
	_, err = locks.TryAcquire(ctx, key)
	wantErr(t, err, core.ErrBusy)
	wantErr(t, lease.Release(ctx), nil)
	gone := try(t, locks, "order:s3cret-gone")
	s.wipe(t)
	wantErr(t, gone.Release(ctx), core.ErrLost)
	runs, err := once.New(locks)
	if err == nil {
		_, err = runs.Do(ctx, once.Call{Name: "pay", Scope: "s3cret-tenant", Key: "s3cret-call"}, func(context.Context) (once.Answer, error) {
			return once.Answer{Value: []byte(answer)}, nil
		})
	}
	if err != nil && (how == nil || !errors.Is(err, core.ErrUnsupported)) {
		t.Error(err)
	}
	parent.End()

	ended, commands := s.spans.Ended(), 0
	for _, span := range ended {
		text += fmt.Sprintf("\n%s %v %v %v %v", span.Name(), span.Attributes(), span.Status(), span.Events(), span.Links())
		for _, a := range span.Attributes() {
			if a == attribute.String("db.system", "redis") {
				commands++
			}
		}
	}
	if commands < 6 {
		t.Errorf("there are only %d commands: %s", commands, text)
	}
	owner, _, _ := strings.Cut(lease.Owner(), ".") // the part after the dot depends on the lease
	secrets = []string{key, owner, answer, gone.Owner(), lease.ID(), "s3cret"}
	if lease.Token() != 0 {
		secrets = append(secrets, fmt.Sprint(lease.Token()))
	}
	return secrets, text
}
