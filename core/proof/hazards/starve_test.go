package hazards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestStarvation checks that a process without processor time does not rely on a key
// that others hold (hazard 6).
func TestStarvation(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// The process does not rely on a key that others hold.
	t.Run("process without processor time", func(t *testing.T) {
		t.Parallel()
		const ttl = 500 * time.Millisecond
		server := testserver.StartRedis(t)
		oracle := newOracle(t, count(50))
		starved := newChild(t, plan{Addr: server.Addr, Name: "starved"}, "GOMAXPROCS=1")
		rested := newChild(t, plan{Addr: server.Addr, Name: "rested"})
		spin := starved.send(order{Op: "spin", N: 4, Hold: 50 * time.Millisecond})
		starved.await(spin, "spinning")
		loop := order{Op: "loop", Key: "starved", TTL: ttl, Hold: ttl / 2, Pause: ttl / 2, N: 1}
		loops := []int{starved.send(loop), rested.send(loop)}
		unthrottle := throttle(starved)
		t.Cleanup(unthrottle)
		testserver.Eventually(t, patience, "both have held the key often enough", func() bool {
			return len(starved.all("hold")) >= count(50)/2 && len(rested.all("hold")) >= count(50)/2
		})
		unthrottle()
		lost := 0
		for i, c := range []*child{starved, rested} {
			c.send(order{Op: "stop"})
			c.await(loops[i], "looped", "failed")
			for _, r := range c.all("failed") {
				t.Errorf("%s: %s", c.name, r.Text)
			}
			for _, r := range c.all("hold") {
				oracle.add(r.Span)
				lost += 1 - r.Count["kept"]
			}
		}
		late := starved.await(spin, "spun").Count["late ms"]
		t.Logf("%d leases were lost; timers of the starved process were up to %d ms late", lost, late)
		if late < 100 {
			t.Errorf("test setup: timers were at most %d ms late", late)
		}
	})
}

// throttle lets a process run only for short periods, like a quota of processor time,
// until the returned function is called.
func throttle(c *child) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			_ = c.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(rand.N(600 * time.Millisecond))
			_ = c.cmd.Process.Signal(syscall.SIGCONT)
			select {
			case <-quit:
				return
			case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-done
	})
}

// capturing records the last claim that was granted.
type capturing struct {
	*redisstore.Store
	mu   sync.Mutex
	last store.Claim
}

func (s *capturing) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.last = c
	}
	return g, err
}

func (s *capturing) granted() store.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// TestCopies runs two copies of a holder, and expects the register to refuse the older
// token (hazard 5).
func TestCopies(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// Both copies hold one lease until another process holds the key.
	t.Run("limit of copied machines", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		rivals := newLocker(t, server.Addr)
		store, err := redisstore.New(testclient.Redis(t, server.Addr))
		if err != nil {
			t.Fatal(err)
		}
		captured := &capturing{Store: store}
		l, err := core.New(captured)
		if err != nil {
			t.Fatal(err)
		}
		twin := newChild(t, plan{Addr: server.Addr, Name: "twin"})
		for n := range 10 {
			key := fmt.Sprintf("copied:%d", n)
			reg := newRegister(t)
			original := acquire(t, l, key)
			adopted := twin.await(twin.send(order{Op: "adopt", Claim: captured.granted()}), "adopted")
			// This is the limit: the store cannot distinguish the two copies. Both
			// tokens belong to one grant.
			if !adopted.OK || adopted.Token == 0 {
				t.Fatalf("the copy got %q and token %d, want one of the original's grant", adopted.Text, adopted.Token)
			}
			if last := max(original.Token(), adopted.Token); !reg.write(last, "one of both") {
				t.Error("the register refused one of two copies")
			}
			// The next grant ends this state.
			release(t, original)
			rival := acquire(t, rivals, key)
			if !reg.write(rival.Token(), "rival") || reg.write(adopted.Token, "twin") {
				t.Error("the register takes the copy's write after that of the next holder")
			}
			if again := twin.await(twin.send(order{Op: "adopt", Claim: captured.granted()}), "adopted"); !again.is("lost") {
				t.Errorf("the copy extends after the next grant: %q, want lost", again.Text)
			}
			wantHeld(t, rival)
			release(t, rival)
		}
	})
}
