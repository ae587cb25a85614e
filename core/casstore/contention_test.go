package casstore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// far is a place with a delay of some milliseconds, as over a network.
type far struct {
	*memory
	won, lost atomic.Int64
}

func (f *far) way() { time.Sleep(500*time.Microsecond + rand.N(time.Millisecond)) }

func (f *far) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	f.way()
	defer f.way()
	return f.memory.Load(ctx, key, w)
}

func (f *far) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	f.way()
	defer f.way()
	ok, err := f.memory.Save(ctx, key, old, e)
	if ok {
		f.won.Add(1)
	} else {
		f.lost.Add(1)
	}
	return ok, err
}

// TestContention_Readers checks that for each write that wins, at most two writes lose.
// In each of four Stores, which stand for processes, ten goroutines read-lock one key
// again and again. The writes of one Store do not compete with each other.
func TestContention_Readers(t *testing.T) {
	t.Parallel()
	rounds := tally.AllTrials(10)
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var all sync.WaitGroup
		var places []*far
		for range 4 {
			p := &far{memory: m}
			places = append(places, p)
			s := newStore(t, p)
			for range 10 {
				all.Go(func() {
					for range rounds {
						c := claim("key")
						c.Weight = 1
						acquire(t, s, c)
						time.Sleep(rand.N(5 * time.Millisecond))
						release(t, s, c, nil)
					}
				})
			}
		}
		start := time.Now()
		all.Wait()
		var won, lost int64
		for _, p := range places {
			won += p.won.Load()
			lost += p.lost.Load()
		}
		t.Logf("%d writes have won, %d have lost, in %v", won, lost, time.Since(start))
		if want := int64(4 * 10 * rounds * 2); won != want || lost > 2*won {
			t.Errorf("got %d writes that won and %d that lost, want %d and at most twice as many", won, lost, want)
		}
	})
}

// TestContention_Waiters checks the writes of a key's holder beside fifty Stores with a
// waiting claim. At most twice as many writes lose as claims are acquired and released.
func TestContention_Waiters(t *testing.T) {
	t.Parallel()
	rounds := tally.Trials(500)
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 50 {
			s := newStore(t, &far{memory: m})
			all.Go(func() {
				c := claim("key")
				// This is a reader, which would share the key with the other readers.
				c.Wait, c.Weight = true, 1
				for ctx.Err() == nil {
					time.Sleep(rand.N(5 * time.Second)) // 20 requests a second in total
					if _, err := s.Acquire(t.Context(), c); err == nil {
						_ = s.Release(t.Context(), c)
						c.Lease = claim("").Lease
					}
				}
			})
		}
		p := &far{memory: m}
		s := newStore(t, p)
		before := p.lost.Load()
		for range rounds {
			c := claim("key")
			c.TTL = time.Minute
			for {
				if _, err := s.Acquire(t.Context(), c); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			release(t, s, c, nil)
		}
		stop()
		all.Wait()
		lost := p.lost.Load() - before
		t.Logf("%d acquires and releases have lost %d times", rounds, lost)
		if lost > 2*int64(rounds) {
			t.Errorf("%d acquires and releases have lost %d times, want %d at most", rounds, lost, 2*rounds)
		}
	})
}
