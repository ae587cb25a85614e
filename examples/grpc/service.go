package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/examples/grpc/chargepb"
	"github.com/lockkit/lockkit/grpcmw"
)

//go:generate sh generate.sh

// service is one replica of the payment service.
type service struct {
	chargepb.UnimplementedPaymentsServer
	db *redis.Client
}

// Charge reads the balance, asks the bank, and writes the new balance, as if no other
// call ran at the same time.
func (s *service) Charge(ctx context.Context, r *chargepb.ChargeRequest) (*chargepb.Receipt, error) {
	balance, err := s.db.Get(ctx, balanceKey(r.GetAccount())).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	n, err := s.bank(ctx, r.GetOrder())
	if err != nil {
		return nil, err
	}
	if err := s.db.Set(ctx, balanceKey(r.GetAccount()), balance+r.GetCents(), time.Hour).Err(); err != nil {
		return nil, err
	}
	return &chargepb.Receipt{Id: fmt.Sprintf("%s/%d", r.GetOrder(), n), Cents: r.GetCents()}, nil
}

// bank stands for the bank. It takes a few milliseconds, counts the charge, and returns
// the order's number of charges.
func (s *service) bank(ctx context.Context, order string) (n int64, err error) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done(): // the client has disconnected, or the lock is lost
		return 0, context.Cause(ctx)
	}
	if n, err = s.db.Incr(ctx, chargesKey(order)).Result(); err != nil {
		return 0, err
	}
	return n, s.db.Expire(ctx, chargesKey(order), time.Hour).Err()
}

func balanceKey(account string) string { return "grpc:balance:" + account }
func chargesKey(order string) string   { return "grpc:charges:" + order }

type tenantKey struct{}

// authenticate identifies the caller. A real service would look the token up.
func authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	token := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(token) != 1 || token[0] != "Bearer "+secret {
		return nil, status.Error(codes.Unauthenticated, "who are you?")
	}
	return next(context.WithValue(ctx, tenantKey{}, "shop"), req)
}

const secret = "correct-horse"

// tenant returns the scope of idempotency keys, so that no tenant gets another tenant's
// receipts.
func tenant(ctx context.Context, _ string, _ any) (string, error) {
	name, ok := ctx.Value(tenantKey{}).(string)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "who are you?")
	}
	return name, nil
}

// replica stands for one process of the service.
type replica struct {
	addr string
	wire *lossy
	stop func() error
}

// startReplica starts a replica with its own connections, its own Locker and its own
// server, like a separate process.
func startReplica(ctx context.Context, redisAddr string, c config) (*replica, error) {
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", redisAddr, err), client.Close())
	}
	store, err := redisstore.New(client)
	if err != nil {
		return nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, err
	}
	// Records are kept as long as the bank remembers a charge. The default of Retain is
	// a day.
	runs, err := once.New(locks, once.Retain(time.Hour))
	if err != nil {
		return nil, err
	}
	// charge.proto declares the rules of each method.
	rules, err := grpcmw.Annotated(locks, grpcmw.Runs(runs, tenant))
	if err != nil {
		return nil, err
	}
	if c.unguarded {
		rules[chargepb.Payments_Charge_FullMethodName] = []grpcmw.Rule{grpcmw.None()}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	wire := newLossy(listener, c.drops)
	options := []grpc.ServerOption{grpc.ChainUnaryInterceptor(wire.drop, authenticate)}
	server := grpc.NewServer(append(options, grpcmw.ServerOptions(rules)...)...)
	chargepb.RegisterPaymentsServer(server, &service{db: client})
	if err := grpcmw.Audit(server, rules); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(wire) }()
	return &replica{listener.Addr().String(), wire, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// The order matters: first the calls, then their locks, and then the connections
		// over which the locks are released.
		server.GracefulStop()
		return errors.Join(<-served, locks.Close(ctx), store.Close(), client.Close())
	}}, nil
}
