package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// hotKey is a key at a store without wake-ups. Several Lockers, which stand for
// processes, acquire the key without a pause, each with 16 goroutines. Each lease is
// held for a millisecond.
type hotKey struct {
	*scripted
	mu     sync.Mutex
	turns  []int // the number of leases by process
	grants []int // the process of each grant of the store, in order
	over   chan struct{}
	all    sync.WaitGroup
}

func newHotKey() *hotKey {
	k := &hotKey{scripted: newScripted(blind{memstore.New()}), over: make(chan struct{})}
	k.setAll(func(_ context.Context, _ int, do func() error) error {
		time.Sleep(80*time.Microsecond + rand.N(80*time.Microsecond))
		defer time.Sleep(80*time.Microsecond + rand.N(80*time.Microsecond))
		return do()
	})
	return k
}

// granted is the store of one process. It records the grants to this process.
type granted struct {
	*hotKey
	process int
}

func (g granted) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	grant, err := g.hotKey.Acquire(ctx, c)
	if err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.grants = append(g.grants, g.process)
	}
	return grant, err
}

// join starts another process. It returns a channel that is closed when that process
// has its first lease.
func (k *hotKey) join(t *testing.T) (first <-chan struct{}) {
	t.Helper()
	k.mu.Lock()
	process := len(k.turns)
	k.turns = append(k.turns, 0)
	k.mu.Unlock()
	l := newLocker(t, granted{k, process})
	had := make(chan struct{})
	once := sync.OnceFunc(func() { close(had) })
	for range 16 {
		k.all.Go(func() {
			for {
				select {
				case <-k.over:
					return
				default:
				}
				lease, err := l.Acquire(t.Context(), "order:1")
				if err != nil {
					t.Errorf("got %v, want a lease", err)
					return
				}
				once()
				k.mu.Lock()
				k.turns[process]++
				k.mu.Unlock()
				time.Sleep(time.Millisecond)
				release(t, lease)
			}
		})
	}
	return had
}

// count waits for d. It returns the number of leases that each process got in the
// meantime. changes is the fraction of the grants that went to another process than the
// grant before.
func (k *hotKey) count(d time.Duration) (turns []int, changes float64) {
	k.mu.Lock()
	before := slices.Clone(k.turns)
	k.grants = nil
	k.mu.Unlock()
	time.Sleep(d)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, n := range k.turns {
		turns = append(turns, n-before[i])
	}
	for i := range k.grants[1:] {
		if k.grants[i] != k.grants[i+1] {
			changes += 1 / float64(len(k.grants)-1)
		}
	}
	return turns, changes
}

func (k *hotKey) end() {
	close(k.over)
	k.all.Wait()
}

// TestTurns_WithoutWakeUps covers hazard 41 of PROOF.md.
func TestTurns_WithoutWakeUps(t *testing.T) {
	t.Parallel()
	sim(t, "four processes", func(t *testing.T) {
		k := newHotKey()
		defer k.end()
		for range 4 {
			k.join(t)
		}
		time.Sleep(time.Second)
		var ratios []float64
		for range max(5, tally.AllTrials(9)) {
			turns, changes := k.count(2 * time.Second)
			ratios = append(ratios, float64(slices.Max(turns))/float64(max(1, slices.Min(turns))))
			if changes < 0.6 {
				t.Errorf("got %.2f of the grants for another process than the one before, want 0.6", changes)
			}
			total := 0
			for _, n := range turns {
				total += n
			}
			if total < 500 {
				t.Errorf("got %d leases in 2s, want 500", total)
			}
		}
		slices.Sort(ratios)
		t.Logf("busiest to idlest: %.2f", ratios)
		if median := ratios[len(ratios)/2]; median > 2 {
			t.Errorf("got %.2f times the leases of the idlest process for the busiest, want at most 2", median)
		}
	})
	sim(t, "one process alone", func(t *testing.T) {
		k := newHotKey()
		defer k.end()
		k.join(t)
		if turns, _ := k.count(2 * time.Second); turns[0] < 1000 {
			t.Errorf("got %d leases in 2s, want 1000", turns[0])
		}
	})
	sim(t, "process that comes later", func(t *testing.T) {
		for range tally.AllTrials(100) {
			k := newHotKey()
			k.join(t)
			time.Sleep(time.Second)
			start := time.Now()
			<-k.join(t)
			if took := time.Since(start); took > 1500*time.Millisecond {
				t.Errorf("got the first lease after %v, want it within 1.5s", took)
			}
			k.end()
		}
	})
	sim(t, "short wait for a free key", func(t *testing.T) {
		k := newHotKey()
		k.join(t)
		k.join(t)
		time.Sleep(time.Second)
		k.end()
		l := newLocker(t, k)
		release(t, acquire(t, t.Context(), l, "order:1", core.Wait(10*time.Millisecond)))
	})
}

// TestPassingOnWithoutWatches checks that a polling process gets a key that another
// process passes on. No watch can be opened.
func TestPassingOnWithoutWatches(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		sim(t, fmt.Sprintf("turn of polling process %v", hold), func(t *testing.T) {
			l, store := setup(t)
			rival := newScripted(store.inner)
			for _, s := range []*scripted{store, rival} {
				s.setAll(slow(50*time.Microsecond, 50*time.Microsecond))
				s.setWatch(func(context.Context, int) (<-chan struct{}, error) { return nil, errBroken })
			}
			other := newLocker(t, rival)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_ = l.Do(ctx, "order:1", func(context.Context) error {
							time.Sleep(hold)
							return nil
						})
					}
				})
			}
			for range tally.AllTrials(10) {
				time.Sleep(rand.N(20 * time.Millisecond))
				release(t, acquire(t, t.Context(), other, "order:1", core.Wait(2*time.Minute)))
			}
			stop()
			wg.Wait()
		})
	}
}
