// Command leader starts three processes, of which one works at a time. It kills the
// first leader, shuts the second leader down gracefully, and prints each new leader
// with the time until it leads.
//
//	go run ./examples/leader                         # embedded Redis, no server needed
//	go run ./examples/leader -redis 127.0.0.1:6379
//
// The exit code is 0 if each of the three processes led, one after the other and with
// growing tokens. It is 1 if not, and 2 if the result is unknown.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/redisstore"
)

func main() {
	addr := flag.String("redis", "", "address of a Redis server (default: an embedded one)")
	member := flag.String("member", "", "take part in this election, instead of starting others that do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	status, err := 0, error(nil)
	if *member != "" {
		err = takePart(ctx, *addr, *member)
	} else {
		status, err = watch(ctx, *addr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		status = 2
	}
	os.Exit(status)
}

// takePart is the main function of a process that takes part in the election.
func takePart(ctx context.Context, addr, election string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	store, err := redisstore.New(client)
	if err != nil {
		return err
	}
	defer store.Close()
	locks, err := core.New(store)
	if err != nil {
		return err
	}
	// Another process leads about two seconds after a leader was killed.
	err = leader.Run(ctx, locks, election, work, leader.Acquire(core.TTL(2*time.Second)))
	if errors.Is(err, context.Canceled) {
		return nil // the process was stopped
	}
	return err
}

func work(ctx context.Context) error {
	lease, _ := core.LeaseFromContext(ctx)
	fmt.Println(lease.Token()) // send the token with every write
	<-ctx.Done()
	return nil
}

// term is the message of a process that has begun to lead.
type term struct {
	process int
	token   uint64
}

// watch starts the processes and makes them lead one after the other.
func watch(ctx context.Context, addr string) (status int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("not done after a minute"))
	defer cancel()
	if addr == "" {
		server, err := miniredis.Run()
		if err != nil {
			return 2, err
		}
		defer server.Close()
		server.ClockTTL(true) // its keys expire like the keys of a real server
		addr = server.Addr()
	}
	election, terms := fmt.Sprintf("example-%d", rand.N(1_000_000)), make(chan term)
	processes := make([]*exec.Cmd, 3)
	for i := range processes {
		p := exec.CommandContext(ctx, os.Args[0], "-redis", addr, "-member", election)
		p.Stderr = os.Stderr
		out, err := p.StdoutPipe()
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			return 2, err
		}
		defer p.Wait()
		defer p.Process.Kill()
		go report(ctx, out, i, terms)
		processes[i] = p
	}
	last, led := term{}, map[int]bool{}
	since := time.Now()
	for _, end := range []string{"killed", "asked to stop", ""} {
		var t term
		select {
		case t = <-terms:
		case <-ctx.Done():
			return 2, context.Cause(ctx)
		}
		fmt.Printf("process %d leads after %v, in term %d\n", t.process, time.Since(since).Round(time.Millisecond), t.token)
		if t.token <= last.token || led[t.process] {
			fmt.Println("which must not be")
			status = 1
		}
		last, led[t.process] = t, true
		if end == "" {
			break
		}
		time.Sleep(500 * time.Millisecond)
		sign := os.Signal(syscall.SIGTERM)
		if end == "killed" {
			sign = os.Kill
		}
		if err := processes[t.process].Process.Signal(sign); err != nil {
			return 2, err
		}
		since = time.Now()
		fmt.Printf("process %d is %s\n", t.process, end)
	}
	return status, nil
}

// report passes on the terms that a process prints.
func report(ctx context.Context, out io.Reader, process int, terms chan<- term) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t := term{process: process}
		if _, err := fmt.Sscan(lines.Text(), &t.token); err != nil {
			return
		}
		select {
		case terms <- t:
		case <-ctx.Done():
			return
		}
	}
}
