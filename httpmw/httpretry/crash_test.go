package httpretry_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/httpmw/httpretry"
	"github.com/lockkit/lockkit/httpmw/stdmw"
	"github.com/lockkit/lockkit/retry"
)

// serviceEnv names the environment variable that makes this program a service. The
// variable has the address of Redis, the policy, and whether the service dies.
const serviceEnv = "LOCKKIT_HTTPRETRY_SERVICE"

// TestCrash kills a service after its charge, and starts another service in its place.
// It covers hazard 72.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	db := testclient.Redis(t, server.Addr)
	for name, c := range map[string]struct {
		policy  string
		charges int
		unknown bool
	}{
		"run again":    {"again", 1, false},
		"at most once": {"once", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			order := c.policy
			first := startService(t, server.Addr, c.policy, "dies")
			proxy := testserver.NewHTTPProxy(t, first.addr)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: httpretry.New(transport, httpretry.Hosts(proxy.Addr),
				httpretry.Retry(retry.Policy{Initial: 200 * time.Millisecond, Jitter: 0.5}))}
			answered := make(chan outcome, 1)
			go func() { answered <- payAt(httpretry.WithKey(ctx, order), client, proxy.Addr, order) }()
			first.wait()
			proxy.Retarget(startService(t, server.Addr, c.policy, "lives").addr)
			got := <-answered
			unknown, isUnknown := got.unknown()
			charges, err := db.Get(ctx, "charges:"+order).Int()
			if err != nil && err != redis.Nil {
				t.Fatal(err)
			}
			if isUnknown != c.unknown || got.paid(order) == c.unknown || charges != c.charges || isUnknown && unknown.Status != http.StatusConflict {
				t.Errorf("got %v, charged %d times, want %d", got, charges, c.charges)
			}
		})
	}
}

// serveForParent runs the service. It serves on a free port until standard input ends,
// and prints the port's address.
func serveForParent(what string) {
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	settings := strings.Fields(what)
	addr, policy, dies := settings[0], settings[1], settings[2]
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.New(client)
	fail(err)
	locks, err := core.New(store)
	fail(err)
	opts := []once.Option{once.Acquire(core.TTL(2 * time.Second))}
	if policy == "once" {
		opts = append(opts, once.AtMostOnce())
	}
	runs, err := once.New(locks, opts...)
	fail(err)
	pay := stdmw.Idempotent(runs, stdmw.AnyCaller())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		order := strings.TrimPrefix(r.URL.Path, "/pay/")
		// If an earlier run died, this run asks the bank first.
		attempt, _ := once.AttemptFromContext(r.Context())
		if attempt == 1 || client.Exists(r.Context(), "charges:"+order).Val() == 0 {
			client.Incr(r.Context(), "charges:"+order)
		}
		if dies == "dies" {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, receipt(order))
	}))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, pay) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// service is a service in a separate process.
type service struct {
	addr string
	wait func()
}

func startService(t *testing.T, settings ...string) service {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serviceEnv+"="+strings.Join(settings, " "), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // the service ends when in is closed, at the latest
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		<-ended
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { defer close(ended); _ = cmd.Wait() }()
	if err != nil {
		t.Fatal(err)
	}
	return service{strings.TrimSpace(line), func() { <-ended }}
}
