package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestOnRedis tests services whose locks are in a redis-server. TTLs are 30 seconds
// unless a test sets another TTL. So a key that is free earlier was released and has
// not expired.
func TestOnRedis(t *testing.T) { onEach(t, testOnRedis) }

func testOnRedis(t *testing.T, mw framework) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for name, run := range map[string]func(*testing.T, framework, *testserver.Redis){
		"200 clicks at three replicas": clicksAtReplicas,
		"clients leave":                clientsLeave, // hazard 47
		"handler panics":               panics,       // hazard 50
		"deleted key":                  keyDeleted,   // hazard 38
		"JSON numbers beyond floats":   bigNumbers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, mw, server)
		})
	}
}

// TestRedisDown tests a Redis that does not answer, and a Redis that is stopped.
func TestRedisDown(t *testing.T) { onEach(t, testRedisDown) }

func testRedisDown(t *testing.T, mw framework) {
	t.Parallel()
	for name, c := range map[string]struct{ fail, mend func(*testserver.Redis) }{
		"frozen": {(*testserver.Redis).Pause, (*testserver.Redis).Resume}, // hazard 23
		"killed": {(*testserver.Redis).Kill, func(s *testserver.Redis) { s.Restart() }},
	} {
		t.Run("Redis is "+name, func(t *testing.T) {
			t.Parallel()
			// With an append-only file, the server has the holds again after a
			// restart.
			server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
			s, db, runs := mw.newReplica(t, server), testclient.Redis(t, server.Addr), atomic.Int32{}
			inside, finish := make(chan struct{}), make(chan struct{})
			lock := mw.Lock(s.locker, "order", mw.Param("id"))
			s.POST("/orders/:id/pay", lock, func(*gin.Context) { runs.Add(1) })
			s.POST("/orders/:id/ship", lock, func(c *gin.Context) {
				close(inside)
				pause(c, finish)
				c.String(http.StatusOK, "shipped")
			})
			shipped := make(chan reply, 1)
			go func() { shipped <- s.send("POST", "/orders/0/ship", "") }()
			within(t, "a handler runs", inside)

			c.fail(server)
			close(finish)
			const orders = 5
			refused := make(chan reply, orders)
			for id := range orders {
				go func() { refused <- s.send("POST", fmt.Sprintf("/orders/%d/pay", id+1), "") }()
			}
			for range orders {
				r := within(t, "a request is answered", refused)
				p := r.problem(t, http.StatusServiceUnavailable)
				if p["type"] != base+"lock-unavailable" || r.header.Get("Retry-After") != "1" {
					t.Errorf("got %v, Retry-After %q", p, r.header.Get("Retry-After"))
				}
			}
			if r := within(t, "the handler is done", shipped); r.body != "shipped" || runs.Load() != 0 {
				t.Errorf("the running handler answered %d %q, and %d ran without a lock", r.status, r.body, runs.Load())
			}
			c.mend(server)
			for id := range orders + 1 {
				eventually(t, "requests succeed again", func() bool {
					return s.send("POST", fmt.Sprintf("/orders/%d/pay", id), "").status == http.StatusOK
				})
			}
			eventually(t, "no key is held", func() bool { return holds(t, db, "order:*") == 0 })
		})
	}
}

func clicksAtReplicas(t *testing.T, mw framework, server *testserver.Redis) {
	const clicks = 200
	b, replicas := bank{db: testclient.Redis(t, server.Addr)}, make([]*site, 3)
	for i := range replicas {
		replicas[i] = mw.newReplica(t, server)
		replicas[i].POST("/orders/:id/pay", mw.Lock(replicas[i].locker, "order", mw.Param("id")), b.pay)
	}
	for id := range b.refused {
		b.refused[id] = make(chan struct{}, clicks)
	}
	click := func(i int) reply {
		id := i % len(b.refused)
		r := replicas[i%len(replicas)].send("POST", fmt.Sprintf("/orders/%d/pay", id), "")
		if r.status == http.StatusConflict {
			b.refused[id] <- struct{}{}
		} else if r.status != http.StatusOK {
			t.Errorf("got %d %q", r.status, r.body)
		}
		return r
	}
	var wg sync.WaitGroup
	for i := range clicks {
		wg.Go(func() { click(i) })
	}
	wg.Wait()
	for id := range b.inside {
		again := click(id) // another click on the paid order, which must not be charged
		charges, err := b.db.Get(t.Context(), fmt.Sprintf("charges:%d", id)).Int()
		if most := b.inside[id].most.Load(); charges != 1 || err != nil || most != 1 || again.status != http.StatusOK {
			t.Errorf("order %d: charged %d times (%v), %d inside at once, then %d; want 1, 1, 200", id, charges, err, most, again.status)
		}
	}
}

// bank charges orders, with a naive ledger in Redis. It reads the ledger before a
// charge, and writes the ledger afterwards. Two simultaneous calls for one order charge
// twice.
type bank struct {
	db      *redis.Client
	inside  [10]gauge
	refused [10]chan struct{}
}

func (b *bank) pay(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	n, _ := strconv.Atoi(id)
	b.inside[n].enter()
	defer b.inside[n].leave()
	paid, err := b.db.Exists(ctx, "paid:"+id).Result()
	if err == nil && paid == 0 {
		if b.inside[n].most.Load() > 1 {
			// The second call should have been refused, and the first call waits for it.
			b.refused[n] <- struct{}{}
		} else {
			for range 10 { // until ten of the other 19 clicks on the order were refused
				pause(c, b.refused[n])
			}
		}
		err = errors.Join(b.db.Incr(ctx, "charges:"+id).Err(), b.db.Set(ctx, "paid:"+id, 1, 0).Err())
	}
	if err != nil {
		c.String(http.StatusInternalServerError, "%v", err)
	}
}

func clientsLeave(t *testing.T, mw framework, server *testserver.Redis) {
	const clients = 10
	s, db := mw.newReplica(t, server), testclient.Redis(t, server.Addr)
	inside, ended := make(chan struct{}, clients), make(chan error, clients)
	s.POST("/:id", mw.Lock(s.locker, "seat", mw.Param("id")), func(c *gin.Context) {
		inside <- struct{}{}
		pause(c, nil)
		ended <- context.Cause(c.Request.Context())
	})
	ctx, leave := context.WithCancel(t.Context())
	for id := range clients {
		go func() { _, _ = s.try(ctx, "POST", fmt.Sprintf("/%d", id), "") }()
	}
	for range clients {
		within(t, "the handler runs", inside)
	}
	if n := holds(t, db, "seat:*"); n != clients {
		t.Errorf("%d keys are held while the handlers run, want %d", n, clients)
	}
	leave()
	for range clients {
		if err := within(t, "the handler's context is done", ended); !errors.Is(err, context.Canceled) || errors.Is(err, core.ErrLost) {
			t.Errorf("the cause is %v", err)
		}
	}
	eventually(t, "the keys are free", func() bool { return holds(t, db, "seat:*") == 0 })
}

func panics(t *testing.T, mw framework, server *testserver.Redis) {
	s, db := mw.newReplica(t, server), testclient.Redis(t, server.Addr)
	s.Use(gin.Recovery())
	s.POST("/:id", mw.Lock(s.locker, "card", mw.Param("id")), func(c *gin.Context) {
		if n := holds(t, db, "card:*"); n != 1 {
			t.Errorf("%d keys are held while the handler runs, want 1", n)
		}
		panic("card reader on fire")
	})
	for range 10 {
		if r := s.send("POST", "/42", ""); r.status != http.StatusInternalServerError || r.body != "" {
			t.Errorf("got %d %q, want gin's empty 500", r.status, r.body)
		}
		if left := db.Exists(t.Context(), "lk2:{card:42}"); left.Val() != 0 || left.Err() != nil {
			t.Errorf("the key is there when the client has its answer (%v)", left)
		}
	}
}

func keyDeleted(t *testing.T, mw framework, server *testserver.Redis) {
	s, other, db, pushed := mw.newReplica(t, server), mw.newReplica(t, server), testclient.Redis(t, server.Addr), errorsOf{}
	lock := mw.Lock(s.locker, "gift", mw.Param("id"), mw.Acquire(core.TTL(3*time.Second)))
	s.POST("/:id", pushed.collect, lock, func(c *gin.Context) {
		if n, err := db.Del(c.Request.Context(), "lk2:{gift:5}").Result(); n != 1 || err != nil {
			t.Errorf("%d keys deleted (%v), want 1", n, err)
		}
		other.hold("gift:5")
		within(t, "the handler's context is done", c.Request.Context().Done())
		if cause := context.Cause(c.Request.Context()); !errors.Is(cause, core.ErrLost) {
			t.Errorf("the cause is %v, want ErrLost", cause)
		}
		c.String(http.StatusCreated, "charged before the loss")
	})
	if r := s.send("POST", "/5", ""); r.status != http.StatusCreated || r.body != "charged before the loss" {
		t.Errorf("got %d %q", r.status, r.body)
	}
	pushed.none(t)
	if s.isFree("gift:5") {
		t.Error("the next holder's lock was released")
	}
}

func bigNumbers(t *testing.T, mw framework, server *testserver.Redis) {
	ids := []string{"9007199254740992", "9007199254740993"} // equal as float64
	inside, finish, replicas := make(chan struct{}, 9), make(chan struct{}), make([]*site, 2)
	for i := range replicas {
		s := mw.newReplica(t, server)
		s.POST("/pay", mw.Lock(s.locker, "big", mw.JSON("order.id")), func(c *gin.Context) {
			inside <- struct{}{}
			pause(c, finish)
			ok(c)
		})
		replicas[i] = s
	}
	body := func(id string) string { return `{"order":{"id":` + id + `}}` }
	answers := make(chan reply, len(ids))
	for i, id := range ids {
		go func() { answers <- replicas[i].send("POST", "/pay", body(id)) }()
		within(t, "both handlers run at once", inside)
	}
	for _, s := range replicas {
		for _, id := range ids {
			s.send("POST", "/pay", body(id)).problem(t, http.StatusConflict)
			s.send("POST", "/pay", body(`"`+id+`"`)).problem(t, http.StatusConflict)
		}
	}
	close(finish)
	for range ids {
		if r := within(t, "the handlers are done", answers); r.status != http.StatusOK || !strings.HasPrefix(r.body, "big:900719925474099") {
			t.Errorf("got %d %q", r.status, r.body)
		}
	}
}

// newReplica returns a service with a separate client, store and locker.
func (mw framework) newReplica(t *testing.T, server *testserver.Redis, opts ...core.Option) *site {
	t.Helper()
	return mw.replicaAt(t, server.Addr, opts...)
}

func (mw framework) replicaAt(t *testing.T, addr string, opts ...core.Option) *site {
	t.Helper()
	store, err := redisstore.New(testclient.Redis(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := mw.newSite(t)
	// This replaces the locker of the store in memory.
	if s.locker, err = core.New(store, opts...); err != nil {
		t.Fatal(err)
	}
	return s
}

// holds counts the keys that match pattern and are held. A released key may remain, to
// refuse a late acquire.
func holds(t *testing.T, db *redis.Client, pattern string) (n int) {
	t.Helper()
	keys, err := db.Keys(t.Context(), "lk2:{"+pattern+"}").Result()
	for _, key := range keys {
		fields, failed := testclient.Fields(t.Context(), db, key)
		err = errors.Join(err, failed)
		for name := range fields {
			if strings.HasPrefix(name, "h:") {
				n++
				break
			}
		}
	}
	if err != nil {
		t.Error(err)
	}
	return n
}

func pause(c *gin.Context, next <-chan struct{}) {
	select {
	case <-next:
	case <-c.Request.Context().Done():
	case <-time.After(soon):
	}
}
