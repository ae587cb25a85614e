// Command payment is a payment service with several replicas, whose clients click "pay"
// many times at once. With the lock, every order is charged once. Then the program runs
// clients that stop waiting for a slow bank and send their request again to other
// replicas. With one Idempotency-Key, each client receives the receipt of its first
// try.
//
//	go run ./examples/payment              # embedded Redis, no server needed
//	go run ./examples/payment -unlocked    # the same without the lock: exits 1
//	go run ./examples/payment -redis 127.0.0.1:6379
//	go run ./examples/payment -store redlock -redlock 127.0.0.1:6381,127.0.0.1:6382,127.0.0.1:6383
//	go run ./examples/payment -store zookeeper -zookeeper 127.0.0.1:2181
//	go run ./examples/payment -store postgres -postgres postgres://user@127.0.0.1/db
//	go run ./examples/payment -store mysql -mysql 'root@tcp(127.0.0.1:3306)/test'
//	go run ./examples/payment -store sqlite   # a file in a temporary directory, no server needed
//	go run ./examples/payment -serve       # keeps serving, see -addr
//
// A click that is answered 503 is repeated a few times, because nothing was charged for
// it.
//
// The exit code is 1 if an order was charged more than once, or never although the
// service was available. It is also 1 if a client that repeated its request was charged
// twice, or did not get the stored receipt of its charge. It is 2 if the run shows
// nothing: -unlocked did no harm, the service was unavailable for an order or did not
// answer a client, or something else failed. Otherwise it is 0. If the service stays
// unavailable for some orders, the program names them. With -unlocked no client stops
// waiting.
//
// With -store mysql or sqlite everything is in one database, and an order is committed
// together with its response. With every other store, the orders are in Redis. The
// responses for Idempotency-Keys are in Redis too, if the store of the locks cannot store
// them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

type config struct {
	serve, unlocked, json               bool
	store                               string
	addr                                string
	redis, redlock, zookeeper, postgres string // addresses
	mysql, sqlite                       string // DSN, file
	orders, clicks, replicas            int
	retries                             int
}

func main() {
	var c config
	flag.BoolVar(&c.serve, "serve", false, "keep serving instead of clicking")
	flag.StringVar(&c.addr, "addr", "127.0.0.1:8080", "where -serve listens")
	flag.StringVar(&c.redis, "redis", "", "address of a Redis server; several processes with the same one are one service (default: an embedded one)")
	flag.StringVar(&c.store, "store", "redis", "where the locks live: redis, redlock, zookeeper, postgres, mysql or sqlite")
	flag.StringVar(&c.redlock, "redlock", "", "for -store redlock: addresses of three or more independent Redis servers, with commas (default: three embedded ones)")
	flag.StringVar(&c.zookeeper, "zookeeper", "127.0.0.1:2181", "for -store zookeeper: addresses of the ensemble, with commas")
	flag.StringVar(&c.postgres, "postgres", "postgres://127.0.0.1/postgres", "for -store postgres: URL of the database, in which the schema of the locks is made")
	flag.StringVar(&c.mysql, "mysql", "root@tcp(127.0.0.1:3306)/test", "for -store mysql: DSN of the MySQL or MariaDB database, in which tables are made")
	flag.IntVar(&c.orders, "orders", 8, "how many orders")
	flag.IntVar(&c.clicks, "clicks", 20, "how many clicks on each order, all at once")
	flag.IntVar(&c.replicas, "replicas", 3, "how many replicas of the service")
	flag.IntVar(&c.retries, "retries", 4, "how many clients lose patience and ask again under the same Idempotency-Key")
	flag.BoolVar(&c.unlocked, "unlocked", false, "leave the lock out, to see what it is for")
	flag.BoolVar(&c.json, "json", false, "print the result as JSON")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := payment(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		status = 2
	}
	os.Exit(status)
}

func payment(ctx context.Context, c config) (status int, err error) {
	if flag.NArg() > 0 {
		return 2, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if c.orders < 1 || c.clicks < 1 || c.replicas < 1 {
		return 2, errors.New("-orders, -clicks and -replicas must be at least 1")
	}
	if c.retries < 0 {
		return 2, errors.New("-retries must not be negative")
	}
	if places[c.store] == nil {
		return 2, fmt.Errorf("-store is %q: redis, redlock, zookeeper, postgres, mysql and sqlite are there", c.store)
	}
	stop, err := c.embed()
	if err != nil {
		return 2, err
	}
	defer stop()
	if c.serve {
		r, err := startReplica(ctx, c.addr, c)
		if err != nil {
			return 2, err
		}
		fmt.Printf("serving http://%s: POST /orders/:id/pay, GET /orders/:id (ctrl-c ends it)\n", r.addr)
		<-ctx.Done()
		return 0, r.stop()
	}

	var replicas []string
	for range c.replicas {
		r, err := startReplica(ctx, "127.0.0.1:0", c)
		if err != nil {
			return 2, err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		replicas = append(replicas, r.addr)
	}
	// Each run has its own orders, because a real Redis can have the orders of earlier
	// runs.
	run := rand.N(9000) + 1000
	orders := make([]string, c.orders)
	for i := range orders {
		orders[i] = fmt.Sprintf("%d-%d", run, i+1)
	}
	results, err := click(ctx, replicas, orders, c.clicks)
	if err != nil {
		return 2, err
	}
	if c.unlocked {
		c.retries = 0
	}
	retried, err := insistAll(ctx, replicas, fmt.Sprintf("%d-r", run), c.retries)
	if err != nil {
		return 2, err
	}
	return report(c, results, retried)
}

// replica stands for one process of the service.
type replica struct {
	addr string
	stop func() error
}

// embed starts the servers for which no address was given.
func (c *config) embed() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	start := func(n int) (string, error) {
		addrs := make([]string, n)
		for i := range addrs {
			addr, f, err := startEmbedded()
			if err != nil {
				stop()
				return "", err
			}
			addrs[i], stops = addr, append(stops, f)
		}
		return strings.Join(addrs, ","), nil
	}
	switch {
	case c.store == "sqlite":
		dir, err := os.MkdirTemp("", "payment")
		if err != nil {
			return nil, err
		}
		c.sqlite, stops = filepath.Join(dir, "payment.db"), append(stops, func() { os.RemoveAll(dir) })
	case c.store != "mysql" && c.redis == "":
		if c.redis, err = start(1); err != nil {
			return nil, err
		}
	}
	if c.store == "redlock" && c.redlock == "" {
		if c.redlock, err = start(3); err != nil {
			return nil, err
		}
	}
	return stop, nil
}

// startReplica starts a replica with its own connections, its own Locker and its own
// server, like a separate process.
func startReplica(ctx context.Context, addr string, c config) (_ *replica, err error) {
	var closers closers
	defer func() {
		if err != nil {
			err = errors.Join(err, closers.Close())
		}
	}()
	orders, err := openLedger(ctx, c, &closers)
	if err != nil {
		return nil, err
	}
	locks, err := openLocks(ctx, c, &closers)
	if err != nil {
		return nil, err
	}
	runs, err := once.New(locks)
	if errors.Is(err, core.ErrUnsupported) {
		// This store cannot store responses. They are stored in Redis, with their own
		// locks.
		c.store = "redis"
		answers, err := openLocks(ctx, c, &closers)
		if err != nil {
			return nil, err
		}
		if runs, err = once.New(answers); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if c.unlocked {
		locks = nil
	}
	routes, err := (&service{orders}).routes(locks, runs)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	return &replica{listener.Addr().String(), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		// The order matters: first the requests, then their locks, and then the
		// connections over which the locks are released.
		err := errors.Join(server.Shutdown(ctx), closers.Close())
		if served := <-served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}}, nil
}

func openLocks(ctx context.Context, c config, closers *closers) (*core.Locker, error) {
	store, err := places[c.store](ctx, c, closers)
	if err != nil {
		return nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, err
	}
	closers.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return locks.Close(ctx)
	})
	return locks, nil
}
