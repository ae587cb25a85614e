package hazards_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// tap records the scripts that the server ran, in order, and the messages that they
// published. It reads the output of the server's MONITOR command.
type tap struct {
	t      *testing.T
	origin int64 // difference between the wall clock and the monotonic clock

	mu        sync.Mutex
	called    []command
	calledOn  map[string][]command // by script and key
	published []command
	echoed    map[string]bool
}

// command is a command that the server executed.
type command struct {
	At   int64 // when the server started it, on the monotonic clock
	Args []string
	lua  bool // called by a script
}

// script returns the name of the store's script that the command calls, with its key and
// lease. The SET of an acquire counts as a script.
func (c command) script() (name, key, lease string) {
	if len(c.Args) == 6 && !c.lua && strings.EqualFold(c.Args[0], "set") && strings.EqualFold(c.Args[3], "nx") {
		return "acquire", c.Args[1], c.Args[2][strings.LastIndex(c.Args[2], " ")+1:]
	}
	if len(c.Args) < 6 || c.Args[2] != "1" {
		return "", "", ""
	}
	if word := strings.ToLower(c.Args[0]); word != "evalsha" && word != "eval" {
		return "", "", ""
	}
	name, _, _ = strings.Cut(c.Args[4], " ")
	return name, c.Args[3], c.Args[5]
}

// newTap records a server's commands until the test ends.
func newTap(t *testing.T, server *testserver.Redis) *tap {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	before := mono()
	wall := time.Now().UnixNano()
	tp := &tap{t: t, origin: wall - before, calledOn: make(map[string][]command), echoed: make(map[string]bool)}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	if line, err := in.ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("MONITOR: %q, %v", line, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if c, ok := tp.parse(line); ok {
				tp.note(c)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		wg.Wait()
	})
	return tp
}

// parse parses a line like +1700000000.123456 [0 127.0.0.1:1234] "get" "a".
func (tp *tap) parse(line string) (command, bool) {
	stamp, rest, ok := strings.Cut(strings.TrimPrefix(line, "+"), " [")
	client, rest, found := strings.Cut(rest, "] ")
	sec, frac, dot := strings.Cut(stamp, ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	us, err2 := strconv.ParseInt(frac, 10, 64)
	if !ok || !found || !dot || err != nil || err2 != nil {
		return command{}, false
	}
	c := command{At: s*1e9 + us*1e3 - tp.origin, lua: strings.HasSuffix(client, " lua")}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return c, false
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return c, false
		}
		c.Args = append(c.Args, word)
		rest = rest[len(quoted):]
	}
	return c, len(c.Args) > 0
}

func (tp *tap) note(c command) {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if name, key, _ := c.script(); name != "" {
		tp.called = append(tp.called, c)
		tp.calledOn[name+" "+key] = append(tp.calledOn[name+" "+key], c)
	}
	if strings.EqualFold(c.Args[0], "publish") {
		tp.published = append(tp.published, c)
	}
	if strings.EqualFold(c.Args[0], "echo") {
		tp.echoed[c.Args[len(c.Args)-1]] = true
	}
}

func (tp *tap) calls(script, key string) []command {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return append([]command(nil), tp.calledOn[script+" "+stored(key)]...)
}

func (tp *tap) allCalls() []command {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return append([]command(nil), tp.called...)
}

// catchUp waits until the tap has received all commands that the server has executed so
// far.
func (tp *tap) catchUp(asks inspector) {
	asks.t.Helper()
	mark := rand.Text()
	if err := asks.Echo(context.Background(), mark).Err(); err != nil {
		asks.t.Fatal(err)
	}
	testserver.Eventually(asks.t, patience, "the tap has caught up", func() bool {
		tp.mu.Lock()
		defer tp.mu.Unlock()
		return tp.echoed[mark]
	})
}

func (tp *tap) wakeUps(key string) int {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	n := 0
	for _, c := range tp.published {
		if strings.HasPrefix(c.Args[len(c.Args)-1], stored(key)+" ") {
			n++
		}
	}
	return n
}

func (tp *tap) awaitCalls(script, key string, n int) {
	tp.t.Helper()
	testserver.Eventually(tp.t, patience, "the call arrives", func() bool { return len(tp.calls(script, key)) >= n })
}
