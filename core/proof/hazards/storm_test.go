package hazards_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// TestStorm makes several processes acquire a few keys again and again. Meanwhile it
// injects faults at random times. No fault removes a key from the server. The test
// combines hazards 1, 23, 46 and 48.
func TestStorm(t *testing.T) {
	t.Parallel()
	t.Run("one holder and no stuck caller", func(t *testing.T) {
		t.Parallel()
		s := &storm{t: t, server: testserver.StartRedis(t), oracle: newOracle(t, 50)}
		s.keys = []string{"storm:a", "storm:b", "storm:c", "storm:d", "storm:e"}
		for i := range 6 {
			p := &ship{name: strconv.Itoa(i), proxy: testserver.NewRedisProxy(t, s.server.Addr)}
			s.board(p)
			s.ships = append(s.ships, p)
		}
		// Faults are random. If few leases are lost, the storm lasts longer.
		for round := 0; round == 0 || round < 10 && s.losses() < count(100); round++ {
			s.rage(time.Duration(count(60)) * time.Second)
		}
		s.calm()
	})
}

type storm struct {
	t      *testing.T
	server *testserver.Redis
	oracle *oracle
	keys   []string
	ships  []*ship
	lost   int // number of lost leases
}

// ship is a process with its network. If the process is killed, it is started again.
type ship struct {
	name  string
	proxy *testserver.Proxy
	child *child
	loops []int
}

const stormTTL = 800 * time.Millisecond

func (s *storm) board(p *ship) {
	p.child = newChild(s.t, plan{Addr: p.proxy.Addr, Name: p.name})
	p.loops = nil
	for _, key := range s.keys {
		p.loops = append(p.loops, p.child.send(order{
			Op: "loop", Key: key, TTL: stormTTL, Hold: 40 * time.Millisecond, Pause: time.Millisecond, N: 2, Fair: key == s.keys[0],
		}))
	}
}

func (s *storm) leave(p *ship) {
	for _, r := range p.child.all("failed") {
		s.t.Errorf("%s: %s", p.name, r.Text)
	}
	for _, r := range p.child.all("hold") {
		s.oracle.add(r.Span)
		s.lost += 1 - r.Count["kept"]
	}
}

func (s *storm) losses() int {
	n := s.lost
	for _, p := range s.ships {
		for _, r := range p.child.all("hold") {
			n += 1 - r.Count["kept"]
		}
	}
	return n
}

// rage applies one fault after the other to the processes. At the same time it applies
// faults to the network and the server.
func (s *storm) rage(d time.Duration) {
	var mu sync.Mutex
	done := make(map[string]int)
	var wg sync.WaitGroup
	for _, act := range []func() string{s.hitProcess, s.hitNetwork} {
		wg.Go(func() {
			for end := mono() + int64(d); mono() < end; time.Sleep(rand.N(100 * time.Millisecond)) {
				what := act()
				mu.Lock()
				done[what]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.t.Logf("what happened: %v", done)
}

// spell returns the random duration of a fault, up to twice the TTL.
func spell() time.Duration { return rand.N(2 * stormTTL) }

func (s *storm) hitProcess() string {
	p := s.ships[rand.N(len(s.ships))]
	if rand.N(5) == 0 {
		p.child.kill()
		s.leave(p)
		s.board(p)
		return "killed"
	}
	p.child.pause()
	time.Sleep(spell())
	p.child.resume()
	return "stopped"
}

func (s *storm) hitNetwork() string {
	switch rand.N(6) {
	case 0:
		s.ships[rand.N(len(s.ships))].proxy.Sever()
		return "severed"
	case 1:
		s.server.Pause()
		time.Sleep(spell())
		s.server.Resume()
		return "server frozen"
	}
	var wg sync.WaitGroup
	for _, p := range s.ships {
		if rand.N(2) == 0 {
			continue
		}
		wg.Go(func() {
			p.proxy.Partition()
			time.Sleep(spell())
			p.proxy.Heal()
		})
	}
	wg.Wait()
	return "cut off"
}

// calm waits until every process has held every key again, and stops them all.
func (s *storm) calm() {
	since := mono()
	for _, p := range s.ships {
		testserver.Eventually(s.t, patience, "the process holds every key again", func() bool {
			time.Sleep(20 * time.Millisecond)
			all := p.child.all("hold")
			return !slices.ContainsFunc(s.keys, func(key string) bool {
				return !slices.ContainsFunc(all, func(r report) bool { return r.Span.Key == key && r.Span.From > since })
			})
		})
	}
	for _, p := range s.ships {
		p.child.send(order{Op: "stop"})
		for _, id := range p.loops {
			p.child.await(id, "looped", "failed")
		}
		s.leave(p)
	}
	s.t.Logf("%d holds, %d leases lost", s.oracle.len(), s.lost)
	if s.lost < count(100)/2 {
		s.t.Errorf("test setup: %d leases were lost", s.lost)
	}
}
