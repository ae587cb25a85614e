// Command grpc is a gRPC payment service with several replicas. Replies to the clients
// get lost: after a charge, the connection is cut before the reply is sent. The clients
// try again with one idempotency key per call, and every order is charged once.
//
//	go run ./examples/grpc              # embedded Redis, no server needed
//	go run ./examples/grpc -unguarded   # the same without the rules: exits 1
//	go run ./examples/grpc -redis 127.0.0.1:6379
//
// The exit code is 0 if every order was charged exactly once, its client has the receipt
// of that charge, and the balances are right. It is 1 if not. It is 2 if the result is
// unknown: either something failed, or -unguarded did no harm.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"
)

type config struct {
	unguarded, json                   bool
	redis                             string
	orders, accounts, drops, replicas int
}

func main() {
	var c config
	flag.StringVar(&c.redis, "redis", "", "address of a Redis server (default: an embedded one)")
	flag.IntVar(&c.orders, "orders", 24, "how many orders, each a call of its own, all at once")
	flag.IntVar(&c.accounts, "accounts", 3, "how many accounts the orders are charged to")
	flag.IntVar(&c.drops, "drops", 1, "how many replies each replica drops for each order")
	flag.IntVar(&c.replicas, "replicas", 2, "how many replicas of the service")
	flag.BoolVar(&c.unguarded, "unguarded", false, "leave the rules out, to see what they are for")
	flag.BoolVar(&c.json, "json", false, "print the result as JSON")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := charges(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "grpc:", err)
		status = 2
	}
	os.Exit(status)
}

func charges(ctx context.Context, c config) (status int, err error) {
	if flag.NArg() > 0 {
		return 2, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if c.orders < 1 || c.accounts < 1 || c.replicas < 1 || c.drops < 0 {
		return 2, errors.New("-orders, -accounts and -replicas must be at least 1, and -drops not negative")
	}
	addr := c.redis
	if addr == "" {
		embedded, stop, err := startEmbedded()
		if err != nil {
			return 2, err
		}
		defer stop()
		addr = embedded
	}
	var replicas []*replica
	for range c.replicas {
		r, err := startReplica(ctx, addr, c)
		if err != nil {
			return 2, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		replicas = append(replicas, r)
	}
	db := redis.NewClient(&redis.Options{Addr: addr})
	defer db.Close()
	// Each run has its own orders and accounts, because a real Redis can have the data
	// of earlier runs.
	prefix := rand.N(9000) + 1000
	payments := make([]payment, c.orders)
	for i := range payments {
		payments[i].Order = fmt.Sprintf("%d-%d", prefix, i+1)
		payments[i].Account = fmt.Sprintf("%d-%c", prefix, 'a'+i%c.accounts)
	}
	if err := pay(ctx, db, replicas, payments); err != nil {
		return 2, err
	}
	off, err := ledger(ctx, db, payments)
	if err != nil {
		return 2, err
	}
	return report(c, replicas, payments, off)
}

// report prints the results and returns the exit code.
func report(c config, replicas []*replica, payments []payment, off int64) (int, error) {
	var once, more, never, wrong, failed, tries, dropped int
	for _, p := range payments {
		switch {
		case p.Charged == 1:
			once++
		case p.Charged > 1:
			more++
		default:
			never++
		}
		if p.Error != "" {
			failed++
		} else if !p.right() {
			wrong++
		}
	}
	for _, r := range replicas {
		t, d := r.wire.seen()
		tries, dropped = tries+t, dropped+d
	}
	summary := fmt.Sprintf("%d orders, %d tries at %d replicas, %d replies dropped: %d charged once, %d more than once, %d never; %d wrong receipts, %d calls failed, accounts off by %d",
		len(payments), tries, c.replicas, dropped, once, more, never, wrong, failed, off)
	if err := show(c, payments, map[string]any{
		"orders": payments, "once": once, "more": more, "never": never, "tries": tries, "dropped": dropped, "off": off, "summary": summary,
	}); err != nil {
		return 2, err
	}
	right := once == len(payments) && wrong == 0 && off == 0
	switch {
	case c.unguarded && right:
		return 2, errors.New("without the rules no harm was done: this run shows nothing, try more -drops")
	case failed > 0 && more == 0 && wrong == 0:
		return 2, fmt.Errorf("%d calls got no receipt", failed)
	case !right:
		return 1, nil
	}
	return 0, nil
}

func show(c config, payments []payment, result map[string]any) error {
	if c.json {
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "order\taccount\tcharged\treceipt\t")
	for _, p := range payments {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", p.Order, p.Account, p.Charged, p.Receipt, p.Error)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Println(result["summary"])
	return err
}
