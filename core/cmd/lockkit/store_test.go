//go:build unix

package main_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// names returns the names of the requests that the proxy has passed on.
func names(p *testserver.Proxy) (all []string) {
	for _, q := range p.Requests() {
		all = append(all, q.Name)
	}
	return all
}

// TestStoreFlags_Proxy checks that with -proxy the program sends neither SET nor TIME,
// so a script grants each lock.
func TestStoreFlags_Proxy(t *testing.T) {
	t.Parallel()
	p := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
	do(t, redisURL(p.Addr), "run", "order:1", "--", "true").want(t, 0, "")
	if got := names(p); !slices.Contains(got, "set") || !slices.Contains(got, "time") {
		t.Errorf("without the flag: got %v, want SET and TIME", got)
	}
	p.Forget()
	do(t, redisURL(p.Addr), "run", "-proxy", "order:1", "--", "true").want(t, 0, "")
	if got := names(p); slices.Contains(got, "set") || slices.Contains(got, "time") {
		t.Errorf("got %v, want scripts alone", got)
	}
	do(t, redisURL(p.Addr), "ls", "-all", "-proxy").want(t, 0, "")
}

// TestStoreFlags_NoScriptedWakeUps checks that the program itself sends PUBLISH only
// with -no-scripted-wake-ups. A waiter gets the lock in both cases.
func TestStoreFlags_NoScriptedWakeUps(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, flag := range []string{"", "-no-scripted-wake-ups"} {
		p := testserver.NewRedisProxy(t, server.Addr)
		args := []string{"run"}
		if flag != "" {
			args = append(args, flag)
		}
		ran, stop := filepath.Join(t.TempDir(), "ran"), filepath.Join(t.TempDir(), "stop")
		cmd := lockkit(t, redisURL(p.Addr), append(args, "order:1", "--", "sh", "-c", `echo >"$0"; until [ -e "$1" ]; do sleep 0.05; done`, ran, stop)...)
		ended := make(chan call, 1)
		go func() { ended <- end(t, cmd) }()
		testserver.Eventually(t, patience, "the command runs", func() bool { _, err := os.Stat(ran); return err == nil })
		waiter := make(chan error, 1)
		l := service(t, onRedis(t, server.Addr))
		go func() {
			lease, err := l.Acquire(context.Background(), "order:1")
			if err == nil {
				err = lease.Release(context.Background())
			}
			waiter <- err
		}()
		testserver.Eventually(t, patience, "the service waits", func() bool {
			return strings.Contains(do(t, redisURL(server.Addr), "show", "order:1").out, "waits")
		})
		if err := os.WriteFile(stop, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if c := <-ended; c.code != 0 {
			t.Errorf("%q: got %+v", flag, c)
		}
		select {
		case err := <-waiter:
			if err != nil {
				t.Errorf("%q: %v", flag, err)
			}
		case <-time.After(patience):
			t.Fatalf("%q: the service got no lock in %v", flag, patience)
		}
		if got := names(p); slices.Contains(got, "publish") != (flag != "") {
			t.Errorf("%q: got %v, want a PUBLISH of the program: %v", flag, got, flag != "")
		}
	}
}

func TestStoreFlags_OtherStores(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-prefix=p", "-plain", "-redisson", "-proxy", "-no-scripted-wake-ups"} {
		for _, command := range [][]string{{"check"}, {"ls", "-all"}, {"show"}, {"run"}} {
			args := append(slices.Clone(command), flag)
			switch command[0] {
			case "show":
				args = append(args, "order:1")
			case "run":
				args = append(args, "order:1", "--", "true")
			}
			do(t, "postgres://127.0.0.1:1/none", args...).want(t, 64, "only for Redis")
		}
	}
	for _, command := range []string{"run", "ls", "show", "revoke", "release", "check"} {
		if c := do(t, "", command, "-h"); !strings.Contains(c.out, "\n  -proxy ") || !strings.Contains(c.out, "\n  -no-scripted-wake-ups\n") {
			t.Errorf("%s -h: got %q, want both flags", command, c.out)
		}
	}
}
