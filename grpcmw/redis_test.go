package grpcmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/grpcmw"
)

// TestOnRedis tests services whose locks and responses are in a redis-server. TTLs are
// 30 seconds unless a test sets another TTL. So a key that is free earlier was released
// and has not expired.
func TestOnRedis(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, run := range map[string]func(*testing.T, *testserver.Redis){
		"200 calls at three replicas": chargesAtReplicas,
		"clients leave":               clientsLeave, // hazard 47
		"calls to Redis":              roundTrips,
		"handler that was cut off":    cutOff, // hazard 58
		"three kinds of clients":      threeClients,
		"owners travel": func(t *testing.T, server *testserver.Redis) {
			ownersTravel(t, func(opts ...core.Option) *shop { return newReplica(t, server.Addr, opts...) })
		},
		"fifty duplicates at once": duplicates,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, server)
		})
	}
}

// newReplica returns a shop with a separate client, store and locker.
func newReplica(t *testing.T, addr string, opts ...core.Option) *shop {
	t.Helper()
	store, err := redisstore.New(testclient.Redis(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return newShopOn(t, store, opts...)
}

// bank charges orders, with a naive ledger in Redis. It reads the ledger before a
// charge, and writes the ledger afterwards. Two simultaneous calls for one order charge
// twice.
type bank struct{ db *redis.Client }

func (b bank) pay(ctx context.Context, o *Order) (*Receipt, error) {
	paid, err := b.db.Exists(ctx, "paid:"+o.GetId()).Result()
	if err != nil || paid > 0 {
		return &Receipt{Id: o.GetId(), Text: "paid before"}, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(10 * time.Millisecond):
	}
	n, err := b.db.Incr(ctx, "charges:"+o.GetId()).Result()
	return &Receipt{Id: o.GetId(), Text: "charged", Charge: n}, errors.Join(err, b.db.Set(ctx, "paid:"+o.GetId(), 1, 0).Err())
}

func chargesAtReplicas(t *testing.T, server *testserver.Redis) {
	b, replicas := bank{testclient.Redis(t, server.Addr)}, make([]*shop, 3)
	for i := range replicas {
		replicas[i] = newReplica(t, server.Addr)
		replicas[i].OnPay = b.pay
		replicas[i].open(on(Orders_Pay_FullMethodName, replicas[i].Lock()))
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			r := replicas[i%3].Call(fmt.Sprint("a", i%10))
			if r.Err != nil {
				r.Refused(t, codes.Aborted, grpcmw.ReasonBusy)
			}
		})
	}
	wg.Wait()
	for id := range 10 {
		if n, err := b.db.Get(t.Context(), fmt.Sprint("charges:a", id)).Int(); n != 1 || err != nil {
			t.Errorf("order %d: charged %d times, %v", id, n, err)
		}
	}
}

func clientsLeave(t *testing.T, server *testserver.Redis) {
	const clients = 50
	s, db := newReplica(t, server.Addr), testclient.Redis(t, server.Addr)
	inside, ended := make(chan struct{}, 2*clients), make(chan error, 2*clients)
	wait := func(ctx context.Context) error {
		inside <- struct{}{}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}
	s.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) { return nil, wait(ctx) }
	s.OnChat = func(both grpc.BidiStreamingServer[Order, Receipt]) error { return wait(both.Context()) }
	seat := grpcmw.Lock(s.Locker, "seat", grpcmw.Field("id"))
	s.open(grpcmw.Rules{Orders_Pay_FullMethodName: {seat}, Orders_Chat_FullMethodName: {seat}})
	ctx, leave := context.WithCancel(t.Context())
	for id := range clients {
		go func() { _ = ask(ctx, s.Client.Pay, &Order{Id: fmt.Sprint("u", id)}) }()
		both, err := s.Client.Chat(ctx)
		if err == nil {
			err = both.Send(&Order{Id: fmt.Sprint("s", id)})
		}
		if err != nil {
			t.Error(err)
		}
	}
	for range 2 * clients {
		within(t, "the handler runs", inside)
	}
	if n := holds(t, db, "seat:*"); n != 2*clients {
		t.Errorf("%d keys are held while the handlers run", n)
	}
	leave()
	for range 2 * clients {
		if err := within(t, "the handler's context is done", ended); !errors.Is(err, context.Canceled) || errors.Is(err, core.ErrLost) {
			t.Errorf("the cause is %v", err)
		}
	}
	eventually(t, "the keys are free", func() bool { return holds(t, db, "seat:*") == 0 })
}

func roundTrips(t *testing.T, server *testserver.Redis) {
	proxy := testserver.NewRedisProxy(t, server.Addr)
	s := newReplica(t, proxy.Addr)
	s.open(grpcmw.Rules{
		Orders_Pay_FullMethodName:    {grpcmw.Lock(s.Locker, "trip", grpcmw.Field("id"))},
		Orders_Refund_FullMethodName: {grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())},
	})
	count := func(what string, want int, call func()) {
		t.Helper()
		call() // loads the scripts and opens the connection
		proxy.Forget()
		call()
		times := proxy.Count(testserver.Match{Command: "time"}) // each TIME is sent with an acquire
		if n := proxy.Count(testserver.Match{Script: "acquire"}) + proxy.Count(testserver.Match{Script: "release"}); n != want || len(proxy.Requests()) != want+times {
			t.Errorf("%s took %d commands: %v", what, n, proxy.Requests())
		}
	}
	n := 0
	count("a lock", 2, func() { s.Call("7").Is(t, "trip:7") })
	count("a first run", 2, func() {
		n++
		ask(t.Context(), s.Client.Refund, &Order{Id: "7"}, key, fmt.Sprint("trip", n)).Is(t, "no lease")
	})
	count("a replay", 1, func() { ask(t.Context(), s.Client.Refund, &Order{Id: "7"}, key, "trip1").Is(t, "no lease") })
}

// cutOff runs a call at a replica that loses its Redis during the run. It then repeats
// the call at another replica.
func cutOff(t *testing.T, server *testserver.Redis) {
	proxy := testserver.NewRedisProxy(t, server.Addr)
	cut, other, inside, finish := newReplica(t, proxy.Addr), newReplica(t, server.Addr), make(chan struct{}), make(chan struct{})
	cut.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) {
		close(inside)
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
			t.Errorf("the cause is %v, want ErrLost", cause)
		}
		<-finish
		return &Receipt{Text: "of the first"}, nil
	}
	other.OnPay = func(ctx context.Context, _ *Order) (*Receipt, error) {
		attempt, _ := once.AttemptFromContext(ctx)
		return &Receipt{Text: fmt.Sprint("of attempt ", attempt)}, nil
	}
	for _, s := range []*shop{cut, other} {
		o := s.Runs(once.Acquire(core.TTL(time.Second)))
		s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(o, grpcmw.AnyCaller())))
	}
	first := make(chan reply, 1)
	go func() { first <- cut.Call("8", key, "cut") }()
	within(t, "the handler runs", inside)
	proxy.Partition()
	eventually(t, "the other replica may run it", func() bool { return other.Call("8", key, "cut").Err == nil })
	other.Call("8", key, "cut").Is(t, "of attempt 2")
	close(finish)
	within(t, "the first is answered", first).Is(t, "of the first") // its own client gets the reply
	proxy.Heal()
	eventually(t, "the replica that was cut off is back", func() bool { return status.Code(cut.Call("8", key, "cut").Err) == codes.OK })
	for _, s := range []*shop{cut, other} {
		s.Call("8", key, "cut").Is(t, "of attempt 2")
	}
}

func threeClients(t *testing.T, server *testserver.Redis) {
	s, b := newReplica(t, server.Addr), bank{testclient.Redis(t, server.Addr)}
	s.OnPay = b.pay
	s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller()), s.Lock()))
	patient := grpcmw.UnaryClientInterceptor()
	for name, client := range map[string]OrdersClient{
		"native": s.dial(native("0.01s")), "ours": s.dial(grpc.WithChainUnaryInterceptor(patient)), "none": s.Client,
	} {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				r := ask(t.Context(), client.Pay, &Order{Id: name}, key, name)
				if name == "none" && status.Code(r.Err) == codes.Aborted {
					return
				}
				if r.Is(t, "charged"); r.GetCharge() != 1 {
					t.Errorf("%s: charge %d", name, r.GetCharge())
				}
			})
		}
		wg.Wait()
		if n, err := b.db.Get(t.Context(), "charges:"+name).Int(); n != 1 || err != nil {
			t.Errorf("%s: charged %d times, %v", name, n, err)
		}
	}
}

func duplicates(t *testing.T, server *testserver.Redis) {
	replicas, runs, inside, finish := make([]*shop, 2), atomic.Int64{}, make(chan struct{}, 50), make(chan struct{})
	for i := range replicas {
		s := newReplica(t, server.Addr)
		s.OnPay = func(ctx context.Context, o *Order) (*Receipt, error) {
			inside <- struct{}{}
			<-finish
			return counting(&runs)(ctx, o)
		}
		replicas[i] = s.open(on(Orders_Pay_FullMethodName, grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())))
	}
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 50 {
		wg.Go(func() {
			r := replicas[i%2].Call("5", key, "dup")
			if r.Err == nil {
				r.Is(t, "run 1")
				return
			}
			r.Refused(t, codes.Aborted, grpcmw.ReasonInProgress)
			refused.Add(1)
		})
	}
	within(t, "one runs", inside)
	eventually(t, "the others are answered", func() bool { return refused.Load() == 49 })
	close(finish)
	wg.Wait()
	for _, s := range replicas {
		if r := s.Call("5", key, "dup"); runs.Load() != 1 || !r.Replayed() || r.GetText() != "run 1" {
			t.Errorf("%d runs, %v", runs.Load(), r)
		}
	}
}

func TestRedisDown(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s := newReplica(t, server.Addr)
	var runs atomic.Int64
	s.OnPay, s.OnRefund = counting(&runs), counting(&runs)
	s.open(grpcmw.Rules{
		Orders_Pay_FullMethodName:    {s.Lock()},
		Orders_Refund_FullMethodName: {grpcmw.Idempotent(s.Runs(), grpcmw.AnyCaller())},
	})
	t.Run("down and up again", func(t *testing.T) {
		server.Kill()
		s.Call("5").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		ask(t.Context(), s.Client.Refund, &Order{Id: "5"}, key, "k").Refused(t, codes.Unavailable, grpcmw.ReasonUnavailable)
		if runs.Load() != 0 {
			t.Errorf("%d ran", runs.Load())
		}
		server.Restart()
		client := s.dial(grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor()))
		ask(t.Context(), client.Pay, &Order{Id: "5"}).Is(t, "run 1")
		ask(t.Context(), client.Refund, &Order{Id: "5"}, key, "k").Is(t, "run 2")
	})
}

// holds counts the keys that match pattern and are held. A released key may remain, to
// refuse a late acquire.
func holds(t *testing.T, db *redis.Client, pattern string) (n int) {
	t.Helper()
	keys, err := db.Keys(t.Context(), "lk2:{"+pattern+"}").Result()
	for _, key := range keys {
		fields, failed := testclient.Fields(t.Context(), db, key)
		err = errors.Join(err, failed)
		for name := range fields {
			if strings.HasPrefix(name, "h:") {
				n++
				break
			}
		}
	}
	if err != nil {
		t.Error(err)
	}
	return n
}
