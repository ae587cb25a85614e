package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// split is a client that sends commands, and subscribes through the separate client
// listens.
type split struct {
	redis.UniversalClient
	listens *redis.Client
}

func (s split) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.listens.Subscribe(ctx, channels...)
}

// silences are ways in which wake-ups get lost. If the silence is temporary, begin
// returns when the silence is over.
var silences = []struct {
	name  string
	begin func(s *testserver.Redis, p *testserver.Proxy)
	total bool // no wake-up arrives at all
}{
	{"dead subscription", func(_ *testserver.Redis, p *testserver.Proxy) { p.Partition() }, true},
	{"publishing not permitted", func(s *testserver.Redis, _ *testserver.Proxy) {
		s.Do("ACL", "SETUSER", "default", "-publish")
	}, true},
	{"subscription breaks repeatedly", func(_ *testserver.Redis, p *testserver.Proxy) {
		for range 20 {
			p.Sever()
			time.Sleep(rand.N(100 * time.Millisecond))
		}
	}, false},
}

// TestLostWakeUps checks that waiters find a free key without wake-ups (hazard 39).
func TestLostWakeUps(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	for _, s := range silences {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			const ttl = 5 * time.Minute
			server := testserver.StartRedis(t)
			proxy := testserver.NewRedisProxy(t, server.Addr)
			asks := inspect(t, server)
			holder := newLocker(t, server.Addr)
			waiter := lockerOf(t, split{testclient.Redis(t, server.Addr), testclient.Redis(t, proxy.Addr)}, nil)
			n := count(500) / len(silences)
			leases, granted := make([]*core.Lease, n), make([]int64, n)
			var wg sync.WaitGroup
			for i := range n {
				key := fmt.Sprintf("silent:%d", i)
				leases[i] = acquire(t, holder, key, core.TTL(ttl))
				wg.Go(func() {
					lease, err := waiter.Acquire(context.Background(), key, core.TTL(ttl), core.Wait(patience))
					granted[i] = mono()
					if err != nil {
						t.Errorf("waiter %d: %v", i, err)
						return
					}
					release(t, lease)
				})
			}
			for _, lease := range leases {
				testserver.Eventually(t, patience, "all wait", func() bool { return asks.waiters(lease.Key()) == 1 })
			}
			testserver.Eventually(t, patience, "a waiter has subscribed", func() bool {
				return proxy.Count(testserver.Match{Command: "subscribe"}) > 0
			})
			wg.Go(func() { s.begin(server, proxy) })
			released := make([]int64, n)
			for i, lease := range leases {
				wg.Go(func() {
					time.Sleep(20*time.Millisecond + rand.N(2*time.Second))
					release(t, lease)
					released[i] = mono()
				})
			}
			wg.Wait()
			late := 0
			for i := range n {
				took := ms(released[i], granted[i])
				if took > pollCap+slack {
					t.Errorf("waiter %d got the key %v after its release", i, took)
				}
				if took > 20*time.Millisecond {
					late++
				}
			}
			if s.total && late < n/2 {
				t.Errorf("test setup: %d of %d waiters were not woken", late, n)
			}
		})
	}
}

// TestCancelledAtRelease checks that another waiter gets the key if a waiter leaves at
// the release (hazard 43).
func TestCancelledAtRelease(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	// The other waiter is granted the key.
	t.Run("waiter leaves at the release", func(t *testing.T) {
		t.Parallel()
		const lanes = 8
		times := count(10000)
		server := testserver.StartRedis(t)
		lane := make([]*departures, lanes)
		named := make(boards, lanes)
		here := newLocker(t, server.Addr, core.WithObserver(named))
		there := newLocker(t, server.Addr)
		for i := range lane {
			name := fmt.Sprintf("cancelled%d", i)
			lane[i] = &departures{t: t, asks: inspect(t, server), key: name + ":1", here: here, busy: make(chan struct{}, 1), window: time.Millisecond}
			named[name] = lane[i]
		}
		var wg sync.WaitGroup
		for i := range lane {
			wg.Go(func() {
				for n := range times / lanes {
					from := here
					if n%2 == 0 {
						from = there
					}
					lane[i].play(from)
				}
			})
		}
		wg.Wait()
		gone, polled := 0, 0
		for _, d := range lane {
			gone, polled = gone+d.gone, polled+d.polled
			d.asks.awaitFree(d.key, patience) // releases can go on in the background
			wantFree(t, there, d.key)
		}
		t.Logf("the first went without the key %d times; %d times no wake-up came", gone, polled)
		if gone < times/10 || gone > times*9/10 {
			t.Errorf("test setup: the first went without the key %d of %d times", gone, times)
		}
	})
}

// departures plays rounds with two waiters of one key. The first waiter leaves when the
// key is released, and the second waiter must get the key.
type departures struct {
	t    *testing.T
	asks inspector
	key  string
	here *core.Locker
	busy chan struct{} // has a value if here has found the key busy

	window time.Duration // time after the release within which the first waiter leaves
	gone   int           // how often the first waiter did not get the key
	polled int           // how often the second waiter got the key only by polling
}

// boards has the departures of each lock by the lock's name.
type boards map[string]*departures

func (b boards) Observe(_ context.Context, e core.Event) {
	if e.Kind != core.Busy {
		return
	}
	select {
	case b[e.Name].busy <- struct{}{}:
	default:
	}
}

// play plays a round in which from holds the key. If from is here, the first waiter
// waits for the holder's hold, and usually has no place in the store's list.
func (d *departures) play(from *core.Locker) {
	held, err := from.Acquire(context.Background(), d.key, core.Wait(patience))
	if err != nil {
		d.t.Errorf("the holder: %v", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	select {
	case <-d.busy: // of the round before
	default:
	}
	var first, other error
	var got int64
	var wg sync.WaitGroup
	wg.Go(func() { first = d.hold(ctx) })
	if from == d.here {
		select {
		case <-d.busy:
		case <-time.After(patience):
			d.t.Errorf("the first does not wait after %v", patience)
		}
	} else {
		testserver.Eventually(d.t, patience, "the first waits", func() bool { return d.asks.waiters(d.key) == 1 })
	}
	wg.Go(func() {
		other = d.hold(context.Background())
		got = mono()
	})
	time.Sleep(rand.N(time.Millisecond))
	start := mono()
	wg.Go(func() {
		time.Sleep(rand.N(d.window))
		cancel()
	})
	if err := end(held); err != nil {
		d.t.Errorf("the holder: %v", err)
	}
	wg.Wait()
	if first != nil {
		wantErr(d.t, "the first", first, context.Canceled)
		d.gone++
		d.window += d.window / 16
	} else {
		d.window -= d.window / 16 // the waiter left too late
	}
	if other != nil {
		d.t.Errorf("the other one did not get the key: %v", other)
	}
	took := ms(start, got)
	if took > pollCap+slack {
		d.t.Errorf("the other one got the key after %v", took)
	}
	if took > pollCap/2 {
		d.polled++
	}
}

func (d *departures) hold(ctx context.Context) error {
	lease, err := d.here.Acquire(ctx, d.key, core.Wait(patience))
	if err != nil {
		return err
	}
	return end(lease)
}

// end releases lease. It returns nil also if the release had no answer, and goes on in
// the background. A lost lease is no error either: a grant by message lasts for 1.5 s,
// and the machine can stand still for longer.
func end(lease *core.Lease) error {
	err := lease.Release(context.Background())
	if errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrLost) {
		return nil
	}
	return err
}
