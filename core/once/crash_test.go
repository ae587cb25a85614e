package once_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestCrash kills processes after the effect and before the answer is saved, and at
// random moments (hazard 59).
func TestCrash(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// By default the work is run again as attempt 2. With AtMostOnce it is not run
	// again.
	t.Run("killed after the effect", func(t *testing.T) {
		t.Parallel()
		kills := tally.AllTrials(100)
		server := testserver.StartRedis(t)
		db := testclient.Redis(t, server.Addr)
		trials(t, kills, func(t *testing.T, i int) {
			c := startChild(t, plan{Addr: server.Addr, TTL: 3 * time.Second, Hold: true, Keys: pair(i)})
			c.await("charged", 2)
			if rest := c.kill(); len(rest) != 0 {
				t.Errorf("test setup: got %v", rest)
			}
		})
		wantCharges(t, db, kills, "", 1)
		o, strict := onRedis(t, server.Addr, wait(patience)), onRedis(t, server.Addr, wait(patience), once.AtMostOnce())
		var all sync.WaitGroup
		for i := range kills {
			all.Go(func() {
				// From attempt 2 on, the work has to check for an earlier charge.
				out, err := o.Do(t.Context(), charge(pair(i)[0]), func(ctx context.Context) (once.Answer, error) {
					if n, _ := once.AttemptFromContext(ctx); n != 2 {
						return once.Answer{}, fmt.Errorf("it is attempt %d", n)
					}
					return once.Answer{Value: []byte("found to be charged")}, charging(ctx, db, pair(i)[0])
				})
				if err != nil || out.Replayed || out.Attempt != 2 {
					t.Errorf("got %+v and %v, want a run that is attempt 2", out, err)
				}
				replayed(t, strict, charge(pair(i)[0]), "found to be charged", 2)
				for range 2 {
					refused(t, strict, charge(pair(i)[1]), once.ErrIndeterminate)
				}
				refused(t, o, charge(pair(i)[1]), once.ErrIndeterminate)
			})
		}
		all.Wait()
		wantCharges(t, db, kills, "strict", 1)
		wantCharges(t, db, kills, "key", 2)
		if n := db.HLen(t.Context(), absorbed).Val(); n != int64(2*kills) {
			t.Errorf("a resource that knows the key has %d charges, want %d", n, 2*kills)
		}
	})
	// No answer is lost, and with AtMostOnce nothing is done twice.
	t.Run("killed at any moment", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		db := testclient.Redis(t, server.Addr)
		o, strict := onRedis(t, server.Addr, wait(patience)), onRedis(t, server.Addr, wait(patience), once.AtMostOnce())
		var mu sync.Mutex
		var answered, interrupted int
		kill := func(t *testing.T, i int) {
			p := plan{Addr: server.Addr, TTL: time.Second, Turn: true}
			for n := range 200 {
				p.Keys = append(p.Keys, fmt.Sprintf("%s %d %d", []string{"key", "strict"}[n%2], i, n))
			}
			c := startChild(t, p)
			replies := c.await("answered", 1)
			time.Sleep(rand.N(20 * time.Millisecond))
			for key, r := range c.kill() {
				replies[key] = r
			}
			// Each key that the child has reported has an answer. The run that was
			// interrupted has one of the next two keys.
			for n, key := range p.Keys[:min(len(replies)+2, len(p.Keys))] {
				who := []*once.Once{o, strict}[n%2]
				r, out := settle(t, who, db, key)
				charges, _ := strconv.Atoi(db.HGet(t.Context(), charged, key).Val())
				switch before, ok := replies[key]; {
				case ok && (r.n != 0 || string(out.Value) != before.Value):
					t.Errorf("%s: answered %q, and then %q by %d more runs", key, before.Value, out.Value, r.n)
				case charges > 1 && (out.Attempt < 2 || who == strict), charges == 0 && who == o:
					t.Errorf("%s: charged %d times by attempt %d", key, charges, out.Attempt)
				}
				mu.Lock()
				if out.Attempt > 1 || out.Value == nil {
					interrupted++
				}
				mu.Unlock()
			}
			mu.Lock()
			answered += len(replies)
			mu.Unlock()
		}
		n := tally.Trials(300)
		trials(t, n, kill)
		// On a slow machine the kills can all come between two runs.
		for i := n; interrupted == 0 && i < n+100; i++ {
			kill(t, i)
		}
		t.Logf("%d answers were given, %d runs interrupted", answered, interrupted)
		if interrupted == 0 {
			t.Error("test setup: got no interrupted run")
		}
	})
}

// settle makes the call of key twice. The second call must have the same result.
func settle(t *testing.T, o *once.Once, db *redis.Client, key string) (*runs, once.Outcome) {
	t.Helper()
	var r runs
	fn := func(ctx context.Context) (once.Answer, error) {
		r.note(ctx)
		return once.Answer{Value: []byte("found")}, charging(ctx, db, key)
	}
	out, err := o.Do(t.Context(), charge(key), fn)
	if err != nil {
		wantErr(t, err, once.ErrIndeterminate)
		refused(t, o, charge(key), once.ErrIndeterminate)
		return &r, out
	}
	replayed(t, o, charge(key), string(out.Value), out.Attempt)
	return &r, out
}

// TestPause pauses processes inside a run for longer than their lease, and then lets
// them complete the run (hazard 58).
func TestPause(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	o := onRedis(t, server.Addr, wait(patience))
	const ttl = 1500 * time.Millisecond
	trials(t, tally.AllTrials(10), func(t *testing.T, i int) {
		p := plan{Addr: server.Addr, TTL: ttl, Hold: true}
		for n := range 10 {
			p.Keys = append(p.Keys, fmt.Sprintf("stopped %d %d", i, n))
		}
		c := startChild(t, p)
		c.await("charged", len(p.Keys))
		c.process.Pause()
		stopped := time.Now()
		finished := make(chan struct{})
		var successors, ready sync.WaitGroup
		for n, key := range p.Keys {
			if n%3 == 0 {
				continue // no other caller comes
			}
			ready.Add(1)
			successors.Go(func() {
				there := sync.OnceFunc(ready.Done)
				defer there()
				out, err := o.Do(t.Context(), charge(key), func(ctx context.Context) (once.Answer, error) {
					if n%3 == 1 { // still in progress when the paused run completes
						there()
						<-finished
					}
					return once.Answer{Value: []byte("successor")}, nil
				})
				if err != nil || out.Replayed || out.Attempt != 2 {
					t.Errorf("got %+v and %v, want a run that is attempt 2", out, err)
				}
				// The other successors return before the paused run continues.
			})
		}
		ready.Wait()
		time.Sleep(time.Until(stopped.Add(2 * ttl)))
		c.process.Resume()
		c.finish()
		answered := c.await("answered", len(p.Keys))
		close(finished)
		successors.Wait()
		for n, key := range p.Keys {
			alone := n%3 == 0
			if r := answered[key]; r.Lost == alone || r.Value == "" {
				t.Errorf("%s: the stale run got %+v, want its answer, and %v only if there is a successor", key, r, core.ErrLost)
			}
			if alone {
				replayed(t, o, charge(key), answered[key].Value, 1)
			} else {
				replayed(t, o, charge(key), "successor", 2)
			}
		}
	})
}

// pair returns two keys. A child process uses AtMostOnce for the second key.
func pair(i int) []string { return []string{fmt.Sprint("key ", i), fmt.Sprint("strict ", i)} }

// trials runs scene n times, four at a time.
func trials(t *testing.T, n int, scene func(t *testing.T, i int)) {
	t.Helper()
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				t.Run("trial "+strconv.Itoa(i), func(t *testing.T) { scene(t, i) })
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// wantCharges fails the test unless each key that begins with prefix was charged the
// given number of times.
func wantCharges(t *testing.T, db *redis.Client, keys int, prefix string, times int) {
	t.Helper()
	all := db.HGetAll(t.Context(), charged).Val()
	if len(all) != 2*keys {
		t.Errorf("%d keys were charged, want %d", len(all), 2*keys)
	}
	for key, n := range all {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix && n != strconv.Itoa(times) {
			t.Errorf("%s was charged %s times, want %d", key, n, times)
		}
	}
}
