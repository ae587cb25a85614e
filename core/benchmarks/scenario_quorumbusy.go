package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	busyLockers = 10
	busyLoops   = 2 // per processor
	// busyTTL makes redsync's time limit of a node equal to the kit's node time-out.
	busyTTL = time.Second
)

// quorumBusy returns a scenario of locks on a majority of three or five servers, in a
// process that is busy with computations. One of the servers may be down.
func quorumBusy(servers int, down bool) scenario {
	number := map[int]string{3: "three", 5: "five"}[servers]
	sc := scenario{
		name: "quorum", title: fmt.Sprintf("a majority of %s servers, in a busy process", number),
		about: fmt.Sprintf("%d lockers of one process, each with clients of its own, take turns at one free key, beside %d goroutines for each processor that compute. "+
			"The TTL is %v, of which redsync gives a node a twentieth. A call is an acquire with one attempt, or a release. Refused are those that failed, and succeeded the others. "+
			"Milliseconds an acquire, refused ones included. After a refusal the key is another one.", busyLockers, busyLoops, busyTTL),
		columns: []Column{
			{Key: "refused", Title: "refused of 1,000", Digits: 1},
			{Key: "p50", Title: "p50 ms", Digits: 2},
			{Key: "p99", Title: "p99 ms", Digits: 2},
			{Key: "count", Title: "acquires"},
		},
		run: func(b *bench, s *Section) error { return b.quorumBusy(s, servers, down) },
	}
	if servers != 3 {
		sc.name += "-" + number
	}
	sc.name += "-busy"
	peer := "redsync"
	if down {
		sc.name, sc.title = sc.name+"-down", sc.title+", one of the servers down"
		sc.about += " The last server has exited: connections are refused."
		peer = "redsync fail fast" // without this option, a release takes seconds
	}
	// A target for refused would omit the rounds in which the peer refuses nothing.
	for _, who := range []string{"lockkit", "lockkit plain keys"} {
		sc.targets = append(sc.targets, target{who: who, key: "succeeded", of: peer, least: true, limit: 1})
	}
	return sc
}

func (b *bench) quorumBusy(s *Section, n int, down bool) (err error) {
	servers, stop, err := b.startServers(n)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	var stations []station
	var clients []*redis.Client
	for _, c := range quorumContenders(busyTTL) {
		var lockers []*locks
		for i := range busyLockers {
			var own []*redis.Client
			for _, s := range servers {
				own = append(own, goRedis(opening{addr: s.addr, conns: 8}))
			}
			clients = append(clients, own...)
			l, err := c.open(own)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			// A new process first contacts all servers. On a busy machine, this can fail.
			_ = l.warm(b.ctx, fmt.Sprintf("%s:warm:%d", c.name, i))
			lockers = append(lockers, l)
		}
		stations = append(stations, station{
			contender: contender{name: c.name, kind: c.kind},
			round: func(round int) (outcome, error) {
				return b.turns(lockers, fmt.Sprintf("%s:%d", c.name, round)), nil
			},
			close: func() (err error) {
				for _, l := range lockers {
					err = errors.Join(err, l.close())
				}
				return err
			},
		})
	}
	if down {
		if err := servers[n-1].cmd.Process.Kill(); err != nil {
			return err
		}
		<-servers[n-1].ended
	}
	var over atomic.Bool
	var loops sync.WaitGroup
	for range busyLoops * runtime.GOMAXPROCS(0) {
		loops.Go(func() {
			for !over.Load() {
			}
		})
	}
	err = b.interleave(s, b.rounds, stations)
	over.Store(true)
	loops.Wait()
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// turns runs one round, in which the lockers acquire the key one after the other.
func (b *bench) turns(lockers []*locks, key string) (o outcome) {
	var took []float64
	gate, refused, calls := newGate(), 0, 0
	for start := time.Now(); time.Since(start) < 10*b.window || len(took) == 0; {
		l, name := lockers[len(took)%len(lockers)], fmt.Sprintf("%s:%d", key, refused)
		begun := time.Now()
		held, err := l.try(b.ctx, name)
		took, calls = append(took, time.Since(begun).Seconds()*1e3), calls+1
		if err != nil {
			refused++
			continue
		}
		gate.enter()
		gate.leave()
		calls++
		if held.Release(b.ctx) != nil {
			refused++
		}
	}
	slices.Sort(took)
	o.overlaps = gate.overlaps.Load()
	o.figures = map[string]float64{
		"refused": float64(refused) / float64(calls) * 1000, "succeeded": float64(calls-refused) / float64(calls) * 1000,
		"p50": percentile(took, 50), "p99": percentile(took, 99), "count": float64(len(took)),
	}
	return o
}
