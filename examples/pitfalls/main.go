// Command pitfalls shows the steps from SETNX to this kit. Each scene makes one of the
// well-known mistakes of a home-made lock on Redis. The program also plays the same
// scene with the kit.
//
//	go run ./examples/pitfalls                         # embedded Redis, no server needed
//	go run ./examples/pitfalls -redis 127.0.0.1:6379   # a real server
//
// The processes of a scene are clients with their own connections. A crash cuts a client
// off. A pause lasts until the lock has expired in Redis. The result is read from Redis
// by a client that takes no part in the scene.
//
// The exit code is 0 if every naive side failed and the kit never did, 1 if not, and 2
// if a scene could not be played. On a real server the program uses its own keys, which
// begin with "pitfalls:", and deletes them. A tombstone of the kit can remain until it
// expires.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis server (default: an embedded one)")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "pitfalls: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	logging.Disable() // the client would log the failed requests of dead processes
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	status, err := run(ctx, os.Stdout, *addr, scenes)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pitfalls:", err)
	}
	os.Exit(status)
}

// run plays all scenes, prints their results in order, and returns the exit code. The
// scenes run in parallel, because most of them wait for a lock to expire.
func run(ctx context.Context, out io.Writer, addr string, scenes []scene) (status int, err error) {
	if addr == "" {
		embedded, stop, err := startEmbedded()
		if err != nil {
			return 2, err
		}
		defer stop()
		addr = embedded
	}
	spectator := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
	defer spectator.Close()
	if err := spectator.Ping(ctx).Err(); err != nil {
		return 2, fmt.Errorf("redis at %s: %w", addr, err)
	}

	naive, kit := make([]chan outcome, len(scenes)), make([]chan outcome, len(scenes))
	for i, sc := range scenes {
		naive[i], kit[i] = make(chan outcome, 1), make(chan outcome, 1)
		go func() { naive[i] <- perform(ctx, newStage(spectator, addr), sc.naive, sc.verdict) }()
		go func() { kit[i] <- perform(ctx, newStage(spectator, addr), sc.kit, sc.verdict) }()
	}
	var wrong, unplayed int
	for i, sc := range scenes {
		fmt.Fprintf(out, "%d. %s\n", i+1, sc.title)
		for _, r := range []report{
			{"naive", sc.naive, true, <-naive[i]},
			{"kit", sc.kit, false, <-kit[i]},
		} {
			fmt.Fprintln(out, r)
			switch {
			case r.err != nil:
				unplayed++
			case !r.expected():
				wrong++
			}
		}
	}
	fmt.Fprintf(out, "%d scenes played naively and with the kit: %d not as expected, %d not played\n",
		len(scenes), wrong, unplayed)
	switch {
	case wrong > 0:
		return 1, nil
	case unplayed > 0:
		return 2, nil
	}
	return 0, nil
}

// report is one line of output: the result of one side, and whether the side should
// fail.
type report struct {
	name string
	side side
	must bool // the side must fail
	outcome
}

func (r report) expected() bool { return r.err == nil && r.failed == r.must }

func (r report) String() string {
	verdict, did, why := "ok", "holds", r.side.why
	if r.failed {
		did = "fails"
	}
	switch {
	case r.err != nil:
		verdict, did, why = "FAIL", "-", "could not be played: "+r.err.Error()
	case !r.expected() && r.must:
		verdict, why = "FAIL", "the mistake did no harm, so this run shows nothing"
	case !r.expected():
		verdict, why = "FAIL", "this must not happen"
	}
	return fmt.Sprintf("   %-6s %-5s %-4s  %-74s  %s", r.name, did, verdict, why, r.seen)
}
