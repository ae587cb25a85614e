package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/lockkit/lockkit/examples/grpc/chargepb"
	"github.com/lockkit/lockkit/grpcmw"
	"github.com/lockkit/lockkit/retry"
)

const cents = 250

type payment struct {
	Order   string `json:"order"`
	Account string `json:"account"`
	Receipt string `json:"receipt"`
	Charged int64  `json:"charged"` // number of charges by the bank
	Error   string `json:"error,omitempty"`
}

func (p payment) right() bool { return p.Charged == 1 && p.Receipt == p.Order+"/1" }

// pay pays all orders at the same time, each with one client and one call. Then it asks
// the bank for the number of charges.
func pay(ctx context.Context, db *redis.Client, replicas []*replica, payments []payment) error {
	var wg sync.WaitGroup
	for i := range payments {
		p := &payments[i]
		wg.Go(func() {
			receipt, err := charge(ctx, replicas, p)
			if err != nil {
				p.Error = err.Error()
			}
			p.Receipt = receipt.GetId()
		})
	}
	wg.Wait()
	for i := range payments {
		n, err := db.Get(ctx, chargesKey(payments[i].Order)).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		payments[i].Charged = n
	}
	return nil
}

// charge makes one call on a new connection to all replicas, with round-robin load
// balancing.
func charge(ctx context.Context, replicas []*replica, p *payment) (*chargepb.Receipt, error) {
	all := manual.NewBuilderWithScheme("replicas")
	var state resolver.State
	for _, r := range replicas {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: r.addr})
	}
	all.InitialState(state)
	conn, err := grpc.NewClient("replicas:///", grpc.WithResolvers(all),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// All tries of the call below have the same idempotency key.
		grpc.WithChainUnaryInterceptor(grpcmw.UnaryClientInterceptor(grpcmw.Retry(retry.Policy{
			Initial: 20 * time.Millisecond, Max: time.Second, Multiplier: 2, Jitter: 0.5,
		}))))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+secret), 30*time.Second)
	defer cancel()
	return chargepb.NewPaymentsClient(conn).Charge(ctx, &chargepb.ChargeRequest{Account: p.Account, Order: p.Order, Cents: cents})
}

// ledger returns the sum of the differences between the balance of each account and the
// prices of its orders.
func ledger(ctx context.Context, db *redis.Client, payments []payment) (off int64, err error) {
	want := make(map[string]int64)
	for _, p := range payments {
		want[p.Account] += cents
	}
	for account, sum := range want {
		got, err := db.Get(ctx, balanceKey(account)).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, fmt.Errorf("balance of %s: %w", account, err)
		}
		off += max(got-sum, sum-got)
	}
	return off, nil
}
