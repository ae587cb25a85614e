package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestPayment(t *testing.T) {
	program := build(t)

	t.Run("embedded Redis", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, program)
		if status != 0 || !strings.Contains(out, "8 charged once, 0 more than once, 0 never") ||
			!strings.Contains(out, "4 clients lost patience and asked again under the same Idempotency-Key: 4 got the receipt of the first try") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("real Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		out, status := run(t, program, "-redis", server.Addr, "-json", "-orders", "20", "-clicks", "10", "-replicas", "5", "-retries", "6")
		var result struct {
			Once    int
			Orders  []result
			Retries []insistence
		}
		if err := json.Unmarshal([]byte(out), &result); err != nil || status != 0 || result.Once != 20 || len(result.Orders) != 20 || len(result.Retries) != 6 {
			t.Errorf("exit status %d, %v:\n%s", status, err, out)
		}
		for _, r := range result.Retries {
			if !r.satisfied() || r.Tries < 2 || r.GivenUp == 0 {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("a quorum that is down", func(t *testing.T) {
		t.Parallel()
		node := testserver.StartRedis(t).Addr
		out, status := run(t, program, "-store", "redlock", "-redlock", node+",127.0.0.1:1,127.0.0.1:2",
			"-orders", "1", "-clicks", "1", "-replicas", "1", "-retries", "0", "-redis", node)
		if status != 2 || !strings.Contains(out, "0 charged once, 0 more than once, 1 never; 0 clicks refused, 5 repeated after 503, 1 failed") ||
			!strings.Contains(out, "the service was unavailable for the orders") {
			t.Errorf("got exit status %d, want 2:\n%s", status, out)
		}
	})
	t.Run("a quorum that comes back", func(t *testing.T) {
		t.Parallel()
		var nodes []*testserver.Redis
		var addrs []string
		for range 3 {
			s := testserver.StartRedis(t)
			nodes, addrs = append(nodes, s), append(addrs, s.Addr)
		}
		orders := testserver.StartRedis(t).Addr
		replica := serve(t, program, "-store", "redlock", "-redlock", strings.Join(addrs, ","), "-redis", orders)
		paid, err := click(t.Context(), []string{replica}, []string{"before"}, 1)
		if err != nil || paid[0].Paid != 1 {
			t.Fatalf("got %+v and %v, want a receipt", paid, err)
		}
		for _, s := range nodes[:2] {
			s.Pause()
		}
		time.AfterFunc(time.Second, func() {
			for _, s := range nodes[:2] {
				s.Resume()
			}
		})
		results, err := click(t.Context(), []string{replica}, []string{"1", "2"}, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Charged != 1 || r.Paid == 0 || r.Failed > 0 {
				t.Errorf("got %+v, want one charge and no failures", r)
			}
		}
	})
	for name, start := range stores {
		t.Run("locks in "+name, func(t *testing.T) {
			t.Parallel()
			out, status := run(t, program, start(t)...)
			if status != 0 || !strings.Contains(out, "8 charged once, 0 more than once, 0 never") ||
				!strings.Contains(out, "4 got the receipt of the first try") {
				t.Errorf("exit status %d:\n%s", status, out)
			}
		})
	}
	t.Run("without the lock", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, program, "-unlocked")
		if status != 1 || strings.Contains(out, " 0 more than once") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("harmless run without the lock", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, program, "-unlocked", "-clicks", "1")
		if status != 2 || !strings.Contains(out, "shows nothing") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("errors exit with status 2", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"at least 1": {"-clicks", "0"},
			"negative":   {"-retries", "-1"},
			"unexpected": {"now"},
			"redis at":   {"-redis", "127.0.0.1:1"},
			"-store is":  {"-store", "etcd"},
			"postgres:":  {"-store", "postgres", "-postgres", "postgres://127.0.0.1:1/db"},
			"mysql:":     {"-store", "mysql", "-mysql", "root@tcp(127.0.0.1:1)/x"},
			"zookeeper":  {"-store", "zookeeper", "-zookeeper", "127.0.0.1:1"},
			"listen tcp": {"-serve", "-addr", "nowhere:-1"},
		} {
			if out, status := run(t, program, args...); status != 2 || !strings.Contains(out, want) {
				t.Errorf("%v: exit status %d, without %q:\n%s", args, status, want, out)
			}
		}
	})
	t.Run("several processes on one Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		var replicas []string
		for range 3 {
			replicas = append(replicas, serve(t, program, "-redis", server.Addr))
		}
		orders := []string{"1", "2", "9007199254740993", "9007199254740992"}
		results, err := click(t.Context(), replicas, orders, 30)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Charged != 1 || r.Paid == 0 || r.Failed > 0 || r.Paid+r.Refused != 30 {
				t.Errorf("%+v", r)
			}
		}
		again, err := click(t.Context(), replicas, orders, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range again {
			if r.Charged != 1 || r.Paid != 1 {
				t.Errorf("again: %+v", r)
			}
		}
		insisted, err := insistAll(t.Context(), replicas, "insist", 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range insisted {
			if !r.satisfied() {
				t.Errorf("%+v", r)
			}
		}
		for _, c := range []struct {
			order, key, customer string
			status               int
			replayed             bool
		}{
			{"keyed", "k", "", 200, false}, {"keyed", "k", "", 200, true}, {"keyed", `"k"`, "", 200, true},
			{"keyed", "k", "ann", 200, false}, {"other", "k", "", 422, false}, {"keyed", "a, b", "", 400, false},
		} {
			status, replayed := pay(t, replicas[0], c.order, c.key, c.customer)
			if status != c.status || replayed != c.replayed {
				t.Errorf("%+v: got %d, replayed %v", c, status, replayed)
			}
		}
	})
}

// stores has, for each case, a function that starts the servers which the program does
// not embed, and returns the program's flags.
var stores = map[string]func(t *testing.T) []string{
	"redlock": func(t *testing.T) []string {
		var nodes []string
		for range 3 {
			nodes = append(nodes, testserver.StartRedis(t).Addr)
		}
		return []string{"-store", "redlock", "-redlock", strings.Join(nodes, ",")}
	},
	"three embedded nodes": func(*testing.T) []string { return []string{"-store", "redlock"} },
	"zookeeper": func(t *testing.T) []string {
		return []string{"-store", "zookeeper", "-zookeeper", testserver.StartZooKeeper(t).Addr}
	},
	"postgres": func(t *testing.T) []string {
		return []string{"-store", "postgres", "-postgres", testserver.StartPostgres(t).URL()}
	},
	"mysql": func(t *testing.T) []string {
		return []string{"-store", "mysql", "-mysql", testserver.StartMariaDB(t).NewDatabase(t).DSN()}
	},
	"sqlite": func(*testing.T) []string { return []string{"-store", "sqlite"} },
}

func pay(t *testing.T, replica, order, key, customer string) (status int, replayed bool) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+replica+"/orders/"+order+"/pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("X-Customer", customer)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Idempotent-Replayed") == "true"
}

// build builds the program without the race detector, with which the embedded servers
// and the retries of clicks would be too slow on a busy machine.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "payment")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// run returns the program's output on stdout and stderr, and its exit code.
func run(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// serve starts the program with -serve, and returns its address. At the end of the test
// the program must shut down without an error.
func serve(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, append(args, "-serve", "-addr", "127.0.0.1:0")...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", strings.Join(cmd.Args[1:], " "), err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Sscanf(line, "serving http://%s", &addr); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return strings.TrimSuffix(addr, ":")
}
