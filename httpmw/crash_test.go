package httpmw_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// crashEnv is the environment variable that makes this program a service that dies. Its
// value has the address of Redis and the name of the framework.
const crashEnv = "LOCKKIT_HTTPMW_CRASH"

// briefly sets a short TTL for a run whose process will die.
var briefly = once.Acquire(core.TTL(2 * time.Second))

// TestCrash checks a process that dies after its charge and before its response was
// stored. It covers hazard 59.
func TestCrash(t *testing.T) {
	crashes := max(1, tally.AllTrials(30)/3)
	onEach(t, func(t *testing.T, mw framework) { testCrash(t, mw, crashes) })
}

func testCrash(t *testing.T, mw framework, crashes int) {
	t.Parallel()
	server := testserver.StartRedis(t)
	db := testclient.Redis(t, server.Addr)
	for policy, opts := range map[string][]once.Option{"again": nil, "at most once": {once.AtMostOnce()}} {
		for i := range crashes {
			t.Run(fmt.Sprintf("%s crash %d", policy, i+1), func(t *testing.T) {
				t.Parallel()
				key := fmt.Sprintf("%s-%d", policy[:2], i)
				died := newDying(t, mw, server.Addr)
				if status, err := died.pay(t, key); err == nil {
					t.Fatalf("the dying service answered %d", status)
				}
				died.wait()
				successor := mw.newReplica(t, server)
				successor.POST("/pay", mw.Idempotent(successor.runs(opts...), mw.AnyCaller()), func(c *gin.Context) {
					c.String(http.StatusOK, "attempt %d, charges %d", attempt(t, c), charge(c, db))
				})
				var r reply
				eventually(t, "the lease is over", func() bool {
					r = successor.pay(key, "/pay", "5 euros")
					return !strings.Contains(r.body, "idempotency-in-progress")
				})
				charges, err := db.Get(t.Context(), "charges:"+key).Int()
				if err != nil {
					t.Fatal(err)
				}
				if policy != "again" {
					if r.problem(t, http.StatusConflict)["type"] != base+"idempotency-indeterminate" || charges != 1 {
						t.Errorf("got %q, charged %d times", r.body, charges)
					}
					return
				}
				again := successor.pay(key, "/pay", "5 euros")
				if r.body != "attempt 2, charges 2" || again.body != r.body || !again.isReplay() || charges != 2 {
					t.Errorf("got %q, then %q, charged %d times", r.body, again.body, charges)
				}
				successor.pay(key, "/pay", "6 euros").problem(t, http.StatusUnprocessableEntity)
			})
		}
	}
}

func charge(c *gin.Context, db *redis.Client) int64 {
	return db.Incr(context.WithoutCancel(c.Request.Context()), "charges:"+c.GetHeader("Idempotency-Key")).Val()
}

// dieServing runs a service whose handler makes a charge and then kills the process,
// without a response.
func dieServing(what string) {
	addr, name, _ := strings.Cut(what, " ")
	mw := onGin
	if name == onNetHTTP.name {
		mw = onNetHTTP
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	runs, err := once.New(locks, briefly)
	if err != nil {
		panic(err)
	}
	r := newEngine()
	r.POST("/pay", mw.Idempotent(runs, mw.AnyCaller()), func(c *gin.Context) {
		charge(c, client)
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	})
	serveForParent(r)
}

// dying is the service of dieServing in a separate process.
type dying struct {
	url  string
	wait func()
}

func newDying(t *testing.T, mw framework, redisAddr string) *dying {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+redisAddr+" "+mw.name, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // the child ends when this pipe is closed, at the latest
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
	ended := false
	d := &dying{wait: func() {
		if !ended {
			ended = true
			_ = cmd.Wait()
		}
	}}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		d.wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	d.url = "http://" + strings.TrimSpace(line)
	return d
}

func (d *dying) pay(t *testing.T, key string) (status int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", d.url+"/pay", strings.NewReader("5 euros"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}
