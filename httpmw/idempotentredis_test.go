package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestIdempotentOnRedis tests services that store their responses in a redis-server.
func TestIdempotentOnRedis(t *testing.T) {
	largest := tally.AllTrials(20) << 19 // bytes
	onEach(t, func(t *testing.T, mw framework) { testIdempotentOnRedis(t, mw, largest) })
}

func testIdempotentOnRedis(t *testing.T, mw framework, largest int) {
	t.Parallel()
	server := testserver.StartRedis(t)

	for name, wait := range map[string]time.Duration{"at once": 0, "with a wait": soon} {
		t.Run("duplicates at three replicas "+name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			opts := []once.Option{once.Acquire(core.Wait(wait))}
			fifty(t, wait > 0, opts, mw.newReplica(t, server), mw.newReplica(t, server), mw.newReplica(t, server))
		})
	}

	t.Run("replay by another replica", func(t *testing.T) {
		t.Parallel()
		runs, replicas := atomic.Int32{}, []*site{mw.newReplica(t, server), mw.newReplica(t, server)}
		for _, s := range replicas {
			s.POST("/pay", mw.Idempotent(s.runs(), mw.Header("X-User")), func(c *gin.Context) {
				c.Header("Location", "/receipts/1")
				c.Writer.Header()["Link"] = []string{"</a>", "</b>"}
				c.JSON(http.StatusCreated, gin.H{"run": runs.Add(1)})
			})
		}
		for i, s := range []*site{replicas[0], replicas[1], replicas[0]} {
			r := s.pay("k", "/pay", `{"amount":5}`, "X-User", "ann", "Content-Type", "application/json")
			if r.status != http.StatusCreated || r.body != `{"run":1}` || r.isReplay() != (i > 0) || r.header.Get("Location") != "/receipts/1" || len(r.header.Values("Link")) != 2 {
				t.Errorf("request %d: got %d %q %v", i+1, r.status, r.body, r.header)
			}
		}
		if r := replicas[1].pay("k", "/pay", `{"amount":5}`, "X-User", "bob"); r.body != `{"run":2}` || r.isReplay() {
			t.Errorf("another caller got %d %q", r.status, r.body)
		}
		// The next request covers hazard 60.
		replicas[1].pay("k", "/pay", `{"amount":6}`, "X-User", "ann", "Content-Type", "application/json").problem(t, http.StatusUnprocessableEntity)
	})

	t.Run("large bodies", func(t *testing.T) {
		t.Parallel()
		const raised = 16 << 20
		s := mw.newReplica(t, server)
		s.POST("/echo", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.BodyLimit(raised), mw.AnswerLimit(raised)), func(c *gin.Context) {
			data, err := io.ReadAll(c.Request.Body)
			if err != nil {
				t.Error(err)
			}
			c.Data(http.StatusOK, "application/octet-stream", data)
		})
		for _, size := range []int{0, 100 << 10, largest} {
			key, body := fmt.Sprintf("size-%d", size), strings.Repeat("0123456789abcdef", size/16)
			for i := range 2 {
				if r := s.pay(key, "/echo", body); r.status != http.StatusOK || r.body != body || r.isReplay() != (i > 0) {
					t.Errorf("%d bytes, request %d: got %d with %d bytes", size, i+1, r.status, len(r.body))
				}
			}
		}
	})

	// This case covers hazard 50.
	t.Run("run again after panic and 500", func(t *testing.T) {
		t.Parallel()
		s := mw.newReplica(t, server)
		recovery := gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) })
		s.POST("/broken", recovery, mw.Idempotent(s.runs(), mw.AnyCaller()), func(c *gin.Context) {
			switch n := attempt(t, c); n {
			case 1:
				panic("card reader on fire")
			case 2:
				c.String(http.StatusBadGateway, "no answer from the bank")
			default:
				c.String(http.StatusOK, "attempt %d", n)
			}
		})
		for i, want := range []int{500, 502, 200, 200} {
			if r := s.pay("k", "/broken", "5 euros"); r.status != want {
				t.Errorf("request %d: got %d %q, want %d", i+1, r.status, r.body, want)
			}
			s.pay("k", "/broken", "6 euros").problem(t, http.StatusUnprocessableEntity)
		}
	})

	t.Run("unreplayable responses", func(t *testing.T) {
		t.Parallel()
		s := mw.newReplica(t, server)
		idempotent := mw.Idempotent(s.runs(), mw.AnyCaller())
		s.POST("/stream", idempotent, func(c *gin.Context) { c.SSEvent("tick", 1); c.Writer.Flush() })
		s.POST("/long", idempotent, func(c *gin.Context) { c.String(http.StatusOK, "%s", strings.Repeat("x", 256<<10+1)) })
		for _, path := range []string{"/stream", "/long"} {
			if r := s.pay(path, path, ""); r.status != http.StatusOK {
				t.Errorf("got %d %q", r.status, r.body)
			}
			s.gone(path, path)
		}
	})

	// This case covers hazard 38.
	t.Run("deleted key", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s, db := mw.newReplica(t, server), testclient.Redis(t, server.Addr)
		s.POST("/", mw.Idempotent(s.runs(once.Acquire(core.TTL(3*time.Second))), mw.AnyCaller()), func(c *gin.Context) {
			if err := db.FlushAll(c).Err(); err != nil {
				t.Error(err)
			}
			within(t, "the handler's context ends", c.Request.Context().Done())
			if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
				t.Errorf("the cause is %v", cause)
			}
			c.String(http.StatusOK, "attempt %d", attempt(t, c))
		})
		for range 2 {
			if r := s.pay("k", "/", ""); r.body != "attempt 1" || r.isReplay() {
				t.Errorf("got %d %q", r.status, r.body)
			}
		}
	})
}

// TestIdempotentRedisDown tests an unavailable Redis. It covers hazard 23.
func TestIdempotentRedisDown(t *testing.T) { onEach(t, testIdempotentRedisDown) }

func testIdempotentRedisDown(t *testing.T, mw framework) {
	t.Parallel()
	server := testserver.StartRedis(t)
	s, runs := mw.newReplica(t, server), atomic.Int32{}
	inside, finish := make(chan struct{}, 1), make(chan struct{})
	idempotent := mw.Idempotent(s.runs(), mw.AnyCaller())
	s.POST("/pay", idempotent, func(c *gin.Context) {
		inside <- struct{}{}
		pause(c, finish)
		c.String(http.StatusOK, "run %d", runs.Add(1))
	})
	first, again := make(chan reply, 1), make(chan reply, 1)
	go func() { first <- s.pay("k", "/pay", "") }()
	within(t, "the handler runs", inside)
	server.Pause()
	for _, key := range []string{"k", "new"} {
		p := s.pay(key, "/pay", "").problem(t, http.StatusServiceUnavailable)
		if p["type"] != base+"idempotency-unavailable" {
			t.Errorf("got %v", p)
		}
	}
	close(finish)
	if r := within(t, "the first is answered", first); r.status != http.StatusOK || r.body != "run 1" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	server.Resume()
	eventually(t, "the answer is kept after all", func() bool {
		r := s.pay("k", "/pay", "")
		return r.isReplay() && r.body == "run 1"
	})
	go func() { again <- s.pay("new", "/pay", "") }()
	if r := within(t, "the second is answered", again); r.body != "run 2" || runs.Load() != 2 {
		t.Errorf("got %d %q after %d runs", r.status, r.body, runs.Load())
	}
}
