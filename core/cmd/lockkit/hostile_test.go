//go:build unix

package main_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// harmless fails the test if the output contains characters that control a terminal or
// change the direction of writing.
func (c call) harmless(t testing.TB) call {
	t.Helper()
	for _, text := range []string{c.out, c.errs} {
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("it writes %q", text[i:min(len(text), i+40)])
		}
	}
	return c
}

// hostile is a text that a terminal must not receive. It has control sequences of seven
// and of eight bits, a line that looks like another hold, and characters that reverse
// the line.
const hostile = "\x1b[2J\x1b]0;title\x07\u009b2J\x7f\r\nheld  1s  1s  AAAAAAAAAAA  order:1\u202e\u2066\u200b"

func onZooKeeper(t testing.TB, root string, opts ...zkstore.Option) core.Store {
	t.Helper()
	s, err := zkstore.New(testclient.ZooKeeper(t, 10*time.Second, testserver.SharedZooKeeper(t)), append(opts, zkstore.WithRoot(root))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestTerminal_Keys(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, start := range map[string]func(t *testing.T) (core.Store, string){
		"Redis":      func(t *testing.T) (core.Store, string) { return onRedis(t, server.Addr), redisURL(server.Addr) },
		"PostgreSQL": func(t *testing.T) (core.Store, string) { return onPostgres(t) },
		"MariaDB":    func(t *testing.T) (core.Store, string) { return onMariaDB(t) },
		"SQLite":     func(t *testing.T) (core.Store, string) { return onSQLite(t) },
		"ZooKeeper": func(t *testing.T) (core.Store, string) {
			return onZooKeeper(t, "/hostile"), "zk://" + testserver.SharedZooKeeper(t) + "/hostile"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := start(t)
			locks := service(t, s)
			keys := []string{
				"-json", core.Key("x", hostile), core.Key("x", `x:\u{202e}`), "x:\u202e1:redro\u2066\u200b", `x:"'<b>&$(id);|` + "`\\", "x:  two  words ",
				"x:held  1s  1s  AAAAAAAAAAA  order:1", "x:" + strings.Repeat("\U000e0041", 127), "x:" + strings.Repeat("é", 255), "x:" + strings.Repeat("%", 510),
			}
			leases := make(map[string]*core.Lease)
			for _, key := range keys {
				leases[key] = acquire(t, locks, key)
			}
			card := core.Card{
				Process: "EVIL", Service: hostile, Version: hostile, Host: hostile,
				Entries: []store.CardEntry{{Name: hostile, Key: hostile, Hold: hostile, Trace: hostile, For: time.Hour}, {Name: "x", Key: "x:1", Waiting: true, For: time.Hour}},
			}
			if err := s.(store.Cards).Put(t.Context(), card, time.Hour); err != nil {
				t.Fatal(err)
			}
			listed := make(map[string]bool)
			for _, r := range served(t, url, "ls", "-all", "-json").harmless(t).rows(t) {
				if lease := leases[r.Key]; lease == nil || r.Hold != lease.ID() {
					t.Errorf("%+v is listed", r)
				}
				listed[r.Key] = true
			}
			if len(listed) != len(leases) {
				t.Errorf("%d of %d keys are listed", len(listed), len(leases))
			}
			if c := served(t, url, "ls", "-all").harmless(t); strings.Count(c.out, "\n") != 1+len(leases) || strings.Count(c.out, "AAAAAAAAAAA  order:1") != strings.Count(c.out, "\"x:held  ") {
				t.Errorf("%q", c.out)
			}
			most := tally.AllTrials(len(keys))
			for i, key := range keys {
				lease := leases[key]
				if i >= most {
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
					continue
				}
				if rows := served(t, url, "show", "-json", "--", key).harmless(t).rows(t); len(rows) != 1 || rows[0].Key != key || rows[0].Hold != lease.ID() {
					t.Errorf("%q is shown as %+v", key, rows)
				}
				served(t, url, "revoke", "--", key, lease.ID()).harmless(t).want(t, 0, "")
			}
			if c := served(t, url, "ls").harmless(t); c.code != 0 || strings.Count(c.out, "\n") != 2+len(card.Entries) {
				t.Errorf("%+v", c)
			}
			rows := served(t, url, "ls", "-json").harmless(t).rows(t)
			if len(rows) != len(card.Entries) || rows[0].Key != hostile || rows[0].Service != hostile || rows[0].Trace != hostile || rows[0].Hold != hostile {
				t.Errorf("the card is shown as %+v", rows)
			}
			served(t, url, "revoke", "x:1", hostile).harmless(t).want(t, 70, "no such hold")
			served(t, url, "show", hostile).harmless(t).want(t, 64, "printable")
			served(t, url, "show", "x:\xff").harmless(t).want(t, 64, "printable")
			served(t, url, "-"+hostile).harmless(t).want(t, 64, "unknown command")
			served(t, url, "show", "-"+hostile).harmless(t).want(t, 64, "not defined")
		})
	}
}

// TestTerminal_PlainKeysOfOthers checks that names which other clients
// chose for plain keys cannot control the terminal.
func TestTerminal_PlainKeysOfOthers(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	server.Do("SET", "p:{a}", "somebody", "PX", 60_000)
	server.Do("SET", "p:"+hostile, "somebody", "PX", 60_000)
	server.Do("SET", "p:\xff", "somebody", "PX", 60_000)
	server.Do("SET", "p:turned\u202e", hostile, "PX", 60_000)
	for _, args := range [][]string{{"ls", "-all", "-plain", "-prefix", "p:"}, {"ls", "-json", "-all", "-plain", "-prefix", "p:"}} {
		c := do(t, redisURL(server.Addr), args...).harmless(t)
		c.want(t, 0, "")
		if n := strings.Count(c.out, store.HoldID("somebody")) + strings.Count(c.out, store.HoldID(hostile)); n != 2 {
			t.Errorf("%q", c.out)
		}
	}
}

// TestTerminal_Answers checks that a server's refusal is shown on one line,
// and cannot control the terminal.
func TestTerminal_Answers(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "*") { // a command
						fmt.Fprintf(conn, "-NOPERM no right \x1b[2J\x1b]0;title\x07\u009b2J\u202e\x7f\r\n")
					}
				}
			}()
		}
	}()
	for _, args := range [][]string{{"show", "x:1"}, {"ls"}, {"ls", "-all"}, {"revoke", "x:1", "AAAAAAAAAAA"}, {"check"}, {"check", "-json"}, {"run", "x:1", "--", "true"}} {
		c := do(t, redisURL(listener.Addr().String()), args...).harmless(t)
		if c.code == 0 || strings.Count(c.errs, "\n") > 1 || !strings.Contains(c.out+c.errs, "no right") {
			t.Errorf("%q: %+v", args, c)
		}
	}
}
