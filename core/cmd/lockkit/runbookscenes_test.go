//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// on makes the scene's commands use this server.
func (s *scene) on(server *testserver.Redis) *scene {
	s.store, s.port = redisURL(server.Addr), strconv.Itoa(server.Port())
	return s
}

// known records a command of the text that this test does not run. It checks that file
// contains text, which shows that the subject of the command exists.
func (s *scene) known(command, file, text string) {
	s.t.Helper()
	s.noted(command)
	if content, err := os.ReadFile("../../../" + file); err != nil || !strings.Contains(string(content), text) {
		s.t.Errorf("`%s`: there is no %q in %s (%v)", command, text, file, err)
	}
}

func elsewhere(s *scene) {
	switch s.title {
	case "Metrics":
		s.known("go run .", "examples/observe/main.go", "package main")
	case "Alerts":
		s.known("promtool test rules rules_test.yaml", "examples/observe/rules_test.go", `"rules_test.yaml"`)
	}
}

func unfitScene(s *scene) {
	s.on(testserver.StartRedis(s.t, "--maxmemory-policy", "allkeys-lru"))
	s.block("lockkit check")
}

type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (x *logged) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.Write(p)
}

func (x *logged) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all.String()
}

func logScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	var log logged
	locks, err := core.New(onRedis(s.t, server.Addr), core.WithObserver(core.SlogObserver(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))
	if err != nil {
		s.t.Fatal(err)
	}
	lease := acquire(s.t, locks, "order:42")
	if line := "hold=" + lease.ID(); !strings.Contains(log.String(), line) || strings.Contains(log.String(), "order:42") {
		s.t.Errorf("want %s and no key in %q", line, log.String())
	}
	s.noted("lockkit show")
	if c := s.sh("lockkit show order:42"); !strings.Contains(c.out, lease.ID()) {
		s.t.Errorf("%+v", c)
	}
	s.noted("redis-cli MONITOR") // does not exit
	s.monitor(server, lease.Owner())
	// The rest of the owner is the token.
	if c := s.run("redis-cli GET 'lk2:{order:42}'"); !strings.Contains(c.out, lease.Owner()[:30]) {
		s.t.Errorf("%+v", c)
	}
}

// monitor runs redis-cli MONITOR until it shows the text want, which monitor sends to
// the server.
func (s *scene) monitor(server *testserver.Redis, want string) {
	s.t.Helper()
	cmd := exec.Command("redis-cli", "-p", s.port, "MONITOR")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for seen := false; !seen && lines.Scan(); {
		if lines.Text() == "OK" {
			server.Do("ECHO", want)
		}
		seen = strings.Contains(lines.Text(), want)
	}
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil {
		s.t.Error("redis-cli MONITOR has returned by itself")
	}
}

func rightsScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	s.known("go doc github.com/lockkit/lockkit/core/pgstore", "core/pgstore/doc.go", "GRANT USAGE ON SCHEMA")
	server.Do("ACL", "SETUSER", "locks", "reset", "on", ">secret", "~lk2:*", "resetchannels", "&lk2:wake:*", "+@all", "-del")
	s.store = "redis://locks:secret@" + server.Addr
	if c := s.run("lockkit check"); c.code != 1 || !strings.Contains(c.out, "it needs the rights +eval ") {
		s.t.Errorf("%+v", c)
	}
	if c := s.run("redis-cli ACL LOG 1"); c.code != 0 || !strings.Contains(c.out, `"del"`) {
		s.t.Errorf("%+v", c)
	}
}

func sizingScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	s.known("make bench", "Makefile", "\nbench:")
	s.known("go test ./core -run TestMemory -v", "core/memory_test.go", "func TestMemory(")
	s.known("go doc …/core/pgstore", "core/pgstore/doc.go", "onnection")
	s.known("go test ./core/pgstore -run TestRoundTrips -v", "core/pgstore/locker_test.go", "func TestRoundTrips(")
	s.noted("echo srvr | nc 127.0.0.1 2181") // zooKeeperScene sends the same request
	s.known("go test ./core/zkstore -run TestRequests -v", "core/zkstore/requests_test.go", "func TestRequests(")
	s.sh("lockkit run probe:1 -- true") // makes the server load the scripts
	s.run("redis-cli CONFIG RESETSTAT").want(s.t, 0, "")
	s.run("lockkit run probe:1 -- true").want(s.t, 0, "")
	c := s.run("redis-cli INFO commandstats")
	for _, command := range []string{"set", "time", "evalsha"} {
		if !strings.Contains(c.out, "cmdstat_"+command+":calls=") {
			s.t.Errorf("no %s in %q", command, c.out)
		}
	}
	acquire(s.t, service(s.t, onRedis(s.t, server.Addr)), "order:42")
	c = s.run("redis-cli MEMORY USAGE 'lk2:{order:42}'")
	if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(c.out, "(integer) "))); err != nil || n < 100 || n > 200 {
		s.t.Errorf("%+v", c) // versions differ a little
	}
	for command, want := range map[string]string{
		"redis-cli CLIENT LIST": "cmd=time", "redis-cli INFO memory": "used_memory:", "lockkit ls -all": "order:42",
	} {
		if c := s.run(command); c.code != 0 || !strings.Contains(c.out, want) {
			s.t.Errorf("%s: %+v", command, c)
		}
	}
}

func payments(t *testing.T, store core.Store) *core.Locker {
	t.Helper()
	return service(t, store, core.WithCard(core.Card{Service: "payments", Version: "1.4.2"}))
}

// contended makes holder hold a key, and other wait for it. It returns the IDs of the
// hold and the waiting claim.
func (s *scene) contended(holder, other *core.Locker, opts ...core.AcquireOption) (held, waits string) {
	s.t.Helper()
	lease := acquire(s.t, holder, "order:42")
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = other.Do(ctx, "order:42", func(context.Context) error { return nil }, opts...) })
	s.t.Cleanup(func() { cancel(); wg.Wait() })
	testserver.Eventually(s.t, patience, "there is a waiter", func() bool {
		time.Sleep(20 * time.Millisecond)
		for _, r := range do(s.t, s.store, "show", "-json", "order:42").rows(s.t) {
			if r.State == "waits" {
				waits = r.Hold
			}
		}
		return waits != ""
	})
	return lease.ID(), waits
}

func stuckScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	held, waits := s.contended(payments(s.t, onRedis(s.t, server.Addr)), payments(s.t, onRedis(s.t, server.Addr)))
	s.here = []string{"shaE6yheRgg", held, "R1gK_4w3YFU", waits}

	sql := &scene{section: s.section, t: s.t}
	store, url := onPostgres(s.t)
	sql.store = url
	there, _ := sql.contended(service(s.t, store), service(s.t, store))
	sql.here = []string{"HOLD", there}
	sql.run("lockkit release -now order:42 HOLD").want(s.t, 64, "nothing was released")
	sql.stdin = there + "\n"
	sql.run("lockkit release -now order:42 HOLD").want(s.t, 0, "Another process can acquire the key")

	testserver.Eventually(s.t, patience, "the cards list both", func() bool {
		time.Sleep(200 * time.Millisecond)
		return len(do(s.t, s.store, "ls", "-json").rows(s.t)) == 2
	})
	s.block("lockkit ls")
	s.block("lockkit revoke order:42 shaE6yheRgg")
	s.sh("lockkit revoke order:42 shaE6yheRgg").want(s.t, 70, "nothing has changed")
	s.noted("redis-cli DEL")
	if c := s.sh("redis-cli DEL 'lk2:{order:42}'"); c.out != "(integer) 1\n" {
		s.t.Errorf("%+v", c)
	}
	s.noted("kill -QUIT") // Go's runtime handles this signal
}

func lostScene(s *scene) {
	s.on(testserver.StartRedis(s.t, "--appendonly", "yes"))
	s.block("lockkit check")
	s.slow()
	s.block("redis-cli --latency -i 1 --raw")
}

// slow runs the commands for diagnosing a slow server.
func (s *scene) slow() {
	s.t.Helper()
	s.sh("redis-cli CONFIG SET slowlog-log-slower-than 0; redis-cli KEYS '*'")
	if c := s.run("redis-cli SLOWLOG GET 5"); c.code != 0 || !strings.Contains(c.out, `"KEYS"`) {
		s.t.Errorf("%+v", c)
	}
}

func waitScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	s.slow()
	if c := s.run("redis-cli --latency -i 1 --raw"); c.code != 0 || alike(c.out) != "LATENCY" {
		s.t.Errorf("%+v", c)
	}
	st := onRedis(s.t, server.Addr)
	card := core.Card{Process: "PAYMENTS", Service: "payments", Host: "vm", PID: 1}
	for key, age := range map[string]time.Duration{"order:41": 9 * time.Second, "order:42": 20 * time.Second, "other:42": time.Minute} {
		name, _, _ := strings.Cut(key, ":")
		card.Entries = append(card.Entries, store.CardEntry{Name: name, Key: key, Hold: store.HoldID(key), For: age})
	}
	if err := st.Put(s.t.Context(), card, time.Minute); err != nil {
		s.t.Fatal(err)
	}
	if c := s.run("lockkit ls -held 10s order"); c.code != 0 || !strings.Contains(c.out, "order:42") || strings.Contains(c.out, "order:41") || strings.Contains(c.out, "other:42") {
		s.t.Errorf("%+v", c)
	}
}

func runScene(s *scene) {
	server := testserver.StartRedis(s.t)
	s.on(server)
	proxy := testserver.NewRedisProxy(s.t, server.Addr)
	doomed := service(s.t, onRedis(s.t, proxy.Addr))
	runs, err := once.New(doomed, once.Acquire(core.TTL(10*time.Second)))
	if err != nil {
		s.t.Fatal(err)
	}
	charge := once.Call{Name: "pay", Scope: "acme", Key: "42"}
	states := func() (all []string) {
		for _, r := range do(s.t, s.store, "ls", "-all", "-json", "once").rows(s.t) {
			all = append(all, r.State)
		}
		return all
	}
	begun := false
	testserver.Eventually(s.t, patience, "the run has begun", func() bool {
		_, _ = runs.Do(s.t.Context(), charge, func(context.Context) (once.Answer, error) {
			begun = true
			if got := fmt.Sprint(states()); got != "[held run]" {
				s.t.Errorf("while it goes on it shows %s", got)
			}
			proxy.Partition() // for all other processes, this process has crashed
			return once.Answer{}, nil
		})
		return begun
	})
	testserver.Eventually(s.t, patience, "the hold has expired, and the run is left", func() bool {
		time.Sleep(200 * time.Millisecond)
		return fmt.Sprint(states()) == "[run]"
	})
	strict, err := once.New(service(s.t, onRedis(s.t, server.Addr)), once.AtMostOnce())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := strict.Do(s.t.Context(), charge, func(context.Context) (once.Answer, error) { return once.Answer{}, nil }); !errors.Is(err, once.ErrIndeterminate) {
		s.t.Errorf("got %v, want %v", err, once.ErrIndeterminate)
	}
	s.block("lockkit ls -all once")
}
