// Command observe runs a service under load, and cuts its network to Redis. It serves
// the metrics of the service's locks for Prometheus on /metrics. The directory also has
// alert rules for these metrics (rules.yaml) and a dashboard for Grafana
// (dashboard.json).
//
//	cd examples/observe                   # a separate Go module
//	go run .                              # embedded Redis, no server needed
//	go run . -redis 127.0.0.1:6379
//	go run . -for 10m -listen :2112       # to scrape it with a Prometheus
//
// The load stops after the time of -for. The command then prints the values of the
// metrics, and serves them for the time of -stay. The exit status is 0 if the metrics
// show each expected event, 1 if an event is missing, and 2 after a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"
)

type config struct {
	redis, listen   string
	load, stay      time.Duration
	clients         int
	cutEvery, cutBy time.Duration
}

func main() {
	logging.Disable() // the client would log each broken connection
	c := config{cutEvery: 8 * time.Second, cutBy: 3 * time.Second}
	flag.StringVar(&c.redis, "redis", "", "address of a Redis server (default: an embedded one)")
	flag.StringVar(&c.listen, "listen", "127.0.0.1:0", "where /metrics is served")
	flag.DurationVar(&c.load, "for", 16*time.Second, "how long there is load, 10s to 1h")
	flag.DurationVar(&c.stay, "stay", 0, "how long the metrics are served after that, up to 1h")
	flag.IntVar(&c.clients, "clients", 8, "how many clients ask at a time, 4 to 100")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	complete, err := run(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "observe:", err)
		os.Exit(2)
	}
	if !complete {
		os.Exit(1)
	}
}

func (c config) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case c.load < 10*time.Second || c.load > time.Hour:
		return errors.New("-for must be from 10s to 1h")
	case c.stay < 0 || c.stay > time.Hour:
		return errors.New("-stay must be from 0 to 1h")
	case c.clients < 4 || c.clients > 100:
		return errors.New("-clients must be from 4 to 100")
	}
	return nil
}

func run(ctx context.Context, c config) (complete bool, err error) {
	if err := c.check(); err != nil {
		return false, err
	}
	if c.redis == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			return false, err
		}
		defer embedded.Close()
		embedded.ClockTTL(true)
		c.redis = embedded.Addr()
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return false, err
	}
	s, err := start(ctx, c.redis, listener)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	fmt.Printf("%s/metrics is served, and %d clients ask for %v\n", s.url, c.clients, c.load)

	loaded, end := context.WithTimeout(ctx, c.load)
	defer end()
	done := make(chan int)
	go func() { done <- s.cut(loaded, c.cutEvery, c.cutBy) }()
	sent := s.ask(loaded, c.clients)
	cuts := <-done
	if ctx.Err() != nil {
		return false, errors.New("interrupted")
	}
	complete, err = s.report(ctx, sent, cuts)
	if err != nil || c.stay == 0 {
		return complete, err
	}
	fmt.Printf("the load is over, and the metrics are served for %v more\n", c.stay)
	select {
	case <-time.After(c.stay):
	case <-ctx.Done():
	}
	return complete, nil
}
