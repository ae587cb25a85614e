package once_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// childEnv is the environment variable with the plan of a child. It makes the test
// binary run as a child.
const childEnv = "LOCKKIT_ONCE_CHILD"

// plan is the work of a child. The child makes the calls of all keys, at the same time
// or, with Turn, one after the other. Each run charges at the server. With Hold, a run
// then waits until the test calls finish.
type plan struct {
	Addr string
	TTL  time.Duration
	Keys []string // keys that begin with "strict" are run at most once
	Hold bool
	Turn bool // make the calls one after the other
}

// report is a line of the child's output, in JSON.
type report struct {
	Kind  string // "charged" within a run, or "answered"
	Key   string
	Value string
	Lost  bool // the error of the call matches core.ErrLost
	Text  string
}

// charged is the hash at the server that counts the effects of each key. absorbed is
// the hash that has each effect only once, like a resource with its own idempotency
// keys.
const charged, absorbed = "charged", "absorbed"

func charging(ctx context.Context, db *redis.Client, key string) error {
	p := db.Pipeline()
	p.HIncrBy(ctx, charged, key, 1)
	p.HSetNX(ctx, absorbed, key, "charge")
	_, err := p.Exec(ctx)
	return err
}

// childMain is the main of a child. It returns when its standard input is closed.
func childMain(text string) int {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	options := redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
	db := redis.NewClient(&options)
	more := options
	store, err := redisstore.New(redis.NewClient(&more))
	if err != nil {
		panic(err)
	}
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	policies := map[bool]*once.Once{}
	for _, strict := range []bool{false, true} {
		opts := []once.Option{lasting(p.TTL)}
		if strict {
			opts = append(opts, once.AtMostOnce())
		}
		if policies[strict], err = once.New(locks, opts...); err != nil {
			panic(err)
		}
	}
	var mu sync.Mutex
	out, finish := json.NewEncoder(os.Stdout), make(chan struct{})
	say := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r)
	}
	call := func(key string) {
		o, err := policies[strings.HasPrefix(key, "strict")].Do(context.Background(), charge(key), func(ctx context.Context) (once.Answer, error) {
			if err := charging(context.WithoutCancel(ctx), db, key); err != nil {
				return once.Answer{}, err
			}
			if p.Hold {
				say(report{Kind: "charged", Key: key})
				<-finish
			}
			lost := errors.Is(context.Cause(ctx), core.ErrLost)
			return once.Answer{Value: fmt.Appendf(nil, "receipt of %d, %v", os.Getpid(), lost)}, nil
		})
		r := report{Kind: "answered", Key: key, Value: string(o.Value), Lost: errors.Is(err, core.ErrLost)}
		if err != nil {
			r.Text = err.Error()
		}
		say(r)
	}
	go func() {
		for _, key := range p.Keys {
			if p.Turn {
				call(key)
			} else {
				go call(key)
			}
		}
	}()
	orders := make([]byte, 1)
	for range 2 {
		if n, _ := os.Stdin.Read(orders); n == 0 {
			return 0
		}
		close(finish)
	}
	return 0
}

// child is a process of this test binary with a plan. It is killed at the end of the
// test.
type child struct {
	t       *testing.T
	process *testserver.Process
	in      io.WriteCloser
	reports chan report // closed when the process has exited
}

func startChild(t *testing.T, p plan) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// By default a program with the race detector waits a second before it exits, and
	// continues after a race.
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = stdout
	c := &child{t: t, process: testserver.StartProcess(t, cmd), in: in, reports: make(chan report, 2*len(p.Keys))}
	_ = stdout.Close()
	go func() {
		defer out.Close()
		defer close(c.reports)
		for lines := json.NewDecoder(out); ; {
			var r report
			if lines.Decode(&r) != nil {
				break
			}
			c.reports <- r
		}
	}()
	t.Cleanup(func() { c.kill() })
	return c
}

// await waits for the next n reports and returns them by key. It fails the test unless
// all are of this kind.
func (c *child) await(kind string, n int) map[string]report {
	c.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	all := make(map[string]report)
	for len(all) < n {
		select {
		case r, ok := <-c.reports:
			if !ok || r.Kind != kind {
				c.t.Fatalf("got %+v (%v), want %q", r, ok, kind)
			}
			all[r.Key] = r
		case <-timeout.C:
			c.t.Fatalf("%d of %d were %q within %v", len(all), n, kind, patience)
		}
	}
	return all
}

// kill kills the process, like a crash, and returns the reports that were not yet read.
func (c *child) kill() map[string]report {
	c.process.Kill()
	rest := make(map[string]report)
	for r := range c.reports {
		rest[r.Key] = r
	}
	_ = c.in.Close()
	return rest
}

// finish lets the runs of the child return.
func (c *child) finish() {
	c.t.Helper()
	if _, err := c.in.Write([]byte("f")); err != nil {
		c.t.Fatal(err)
	}
}
