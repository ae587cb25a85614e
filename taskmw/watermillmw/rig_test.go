package watermillmw_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers without an observer log each loss
	routed = routerContext()
	m.Run()
}

// routed is a context with the values of the context of a router's message.
var routed context.Context

// routerContext returns the context of a message of a router. The context is never done.
func routerContext() context.Context {
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	found := make(chan context.Context, 1)
	router.AddNoPublisherHandler("handler", "topic", pubsub, func(msg *message.Message) error {
		found <- context.WithoutCancel(msg.Context())
		return nil
	})
	if err := pubsub.Publish("topic", message.NewMessage("u", nil)); err != nil {
		panic(err)
	}
	go func() {
		if err := router.Run(context.Background()); err != nil {
			panic(err)
		}
	}()
	defer func() { _ = router.Close() }()
	return <-found
}

// inRouter is a context with the values of routed in addition to its own.
type inRouter struct{ context.Context }

func (c inRouter) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return routed.Value(key)
}

// soon is a generous deadline for short operations on a busy machine.
const soon = 60 * time.Second

// sim runs fn as a subtest in virtual time.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

func newLocker(t *testing.T, store core.Store, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func memLocker(t *testing.T) *core.Locker {
	t.Helper()
	return newLocker(t, memstore.New())
}

func newOnce(t *testing.T, l *core.Locker, opts ...once.Option) *once.Once {
	t.Helper()
	o, err := once.New(l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// outage returns a Locker, and a function that makes its store unavailable.
func outage(t *testing.T) (l *core.Locker, down func(bool)) {
	t.Helper()
	faults := new(storetest.Faults)
	l = newLocker(t, storetest.Faulty(memstore.New(), faults))
	down = func(on bool) {
		if !on {
			faults.Hook(nil)
			return
		}
		faults.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
			return storetest.Fault{Lose: storetest.LoseRequest, Err: core.ErrUnavailable}
		})
	}
	t.Cleanup(func() { down(false) })
	return l, down
}

// hold holds a key until the returned function is called, or the test ends.
func hold(t *testing.T, l *core.Locker, key string) (release func()) {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = lease.Release(context.Background()) }
	t.Cleanup(release)
	return release
}

func isFree(t *testing.T, l *core.Locker, key string) bool {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), key)
	if errors.Is(err, core.ErrBusy) {
		return false
	}
	if err != nil {
		t.Error(err)
		return false
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Error(err)
	}
	return true
}

// delivered returns a message in the form in which a router delivers messages.
func delivered(uuid, payload string) *message.Message {
	return under(context.Background(), message.NewMessage(uuid, []byte(payload)))
}

// order returns a message for the order 1, with pairs of names and values as metadata.
func order(metadata ...string) *message.Message {
	msg := delivered("uuid-1", `{"id":1}`)
	for i := 0; i+1 < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	return msg
}

// under returns msg with ctx as its context, to which it adds the values of a router.
func under(ctx context.Context, msg *message.Message) *message.Message {
	msg.SetContext(inRouter{ctx})
	return msg
}

func locked(l *core.Locker, opts ...watermillmw.Option) message.HandlerMiddleware {
	return watermillmw.Lock(l, "order", watermillmw.Payload("id"), opts...)
}

func paid(o *once.Once, opts ...watermillmw.Option) message.HandlerMiddleware {
	return watermillmw.Idempotent(o, "pay", watermillmw.UUID(), opts...)
}

func isNacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}

// counter has a handler that counts its runs.
type counter struct{ runs atomic.Int32 }

func (c *counter) handle(*message.Message) ([]*message.Message, error) {
	c.runs.Add(1)
	return nil, nil
}

func mustNotRun(t *testing.T) message.HandlerFunc {
	return func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler ran")
		return nil, nil
	}
}

// postponed fails the test unless a middleware has nacked msg and returned nothing.
func postponed(t *testing.T, what string, msg *message.Message, produced []*message.Message, err error) {
	t.Helper()
	if err != nil || len(produced) != 0 || !isNacked(msg) {
		t.Errorf("%s: got %d messages, %v, nacked %v; want a nack and nothing else", what, len(produced), err, isNacked(msg))
	}
}

// gauge counts callers: the number inside now, its maximum, and the total number.
type gauge struct{ now, most, total atomic.Int32 }

func (g *gauge) enter() {
	g.total.Add(1)
	n := g.now.Add(1)
	for m := g.most.Load(); n > m && !g.most.CompareAndSwap(m, n); m = g.most.Load() {
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, soon, what, ok)
}

type list struct {
	mu  sync.Mutex
	all []*message.Message
}

func (l *list) add(msgs ...*message.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, msgs...)
}

func (l *list) copy() []*message.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*message.Message(nil), l.all...)
}
