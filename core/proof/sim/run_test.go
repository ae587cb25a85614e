package sim_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// client is one program: a Locker with its own store.
type client struct {
	id      int
	hash    bool // usual keys, as opposed to plain keys or Redisson's
	plain   bool // plain keys, without re-entry
	journal *journal
	ctx     context.Context
	locker  *core.Locker
	jobs    *once.Once
	wipe    func() // empties the server, unless the time of faults is over
	close   func()
}

type scene struct {
	seed uint64
	// ruin puts a deliberate mistake into a store, to check that the oracles find it. It
	// is nil when the kit is tested.
	ruin func(n *network, s core.Store) core.Store
	// strict selects a scene for the checker of histories: one kind of lock, leases
	// that outlast the run, no trouble and no duplicates.
	strict bool
}

type result struct {
	verdict verdict
	journal *journal
	bit     [faults]int
	refused int
}

// run plays a scene in virtual time.
func run(t *testing.T, s scene) (res result) {
	synctest.Test(t, func(t *testing.T) { res = play(t, s) })
	return res
}

func play(t *testing.T, s scene) result {
	r := rand.New(rand.NewPCG(s.seed, 1))
	p := plan{seed: s.seed, once: s.strict, rate: []float64{0.02, 0.06, 0.12}[r.IntN(3)], until: time.Duration(5+r.IntN(11)) * time.Second}
	n := newNetwork(p)
	j := newJournal(n.now)
	j.keep = s.strict
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	hash := s.strict || r.IntN(5) > 0
	var clients []*client
	for i := range 2 + r.IntN(3)*r.IntN(3) {
		clients = append(clients, newClient(t, n, j, ctx, i, hash, s))
	}
	var wg sync.WaitGroup
	if !s.strict {
		wg.Go(func() { trouble(n, j, rand.New(rand.NewPCG(s.seed, 2)), len(clients)) })
	}
	for _, c := range clients {
		for k := range 1 + r.IntN(2) {
			w := &worker{client: c, r: rand.New(rand.NewPCG(s.seed, uint64(c.id*100+k+10))), name: fmt.Sprint("client ", c.id, ", worker ", k)}
			steps := 2 + r.IntN(4)
			wg.Go(func() {
				if s.strict {
					w.strictly(steps * 2)
				} else {
					w.work(steps)
				}
				time.Sleep(p.until + longest + time.Second - n.now())
				w.last()
			})
		}
	}
	// A worker that takes longer than this is stuck.
	limit := time.AfterFunc(p.until+10*time.Minute, func() {
		j.mu.Lock()
		j.stuck = append(j.stuck, "a worker has not come to its end")
		j.mu.Unlock()
		cancel()
	})
	wg.Wait()
	limit.Stop()
	quiet := p.until + longest + time.Second
	j.judgeWaits(quiet, 2*longestTTL+3*time.Second)
	finish(n, j, clients)
	j.doubled = n.doubled
	res := result{verdict: j.judge(), journal: j, bit: n.bit}
	for key := range n.eternal {
		res.verdict.add(eternalKeys, "%s", key)
	}
	for _, reg := range j.registers {
		res.refused += reg.refused
	}
	return res
}

func newClient(t *testing.T, n *network, j *journal, ctx context.Context, id int, hash bool, s scene) *client {
	r := rand.New(rand.NewPCG(s.seed, uint64(id+1000)))
	o := &redis.Options{Addr: "127.0.0.1:6379", Dialer: n.dialer(id, r.IntN(2) == 0), PoolSize: 200}
	if r.IntN(2) == 0 {
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	}
	conn := redis.NewClient(o)
	// Every second scene without the usual keys uses Redisson's locks. Tokens of these
	// locks would not outlast a wipe, so the locks have none.
	plain := !hash && s.seed%2 == 0
	var opts []redisstore.Option
	switch {
	case plain:
		opts = append(opts, redisstore.WithPlainKeys())
	case !hash:
		opts = append(opts, redisstore.WithRedisson())
	}
	redisStore, err := redisstore.New(conn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	var store core.Store = redisStore
	if s.ruin != nil {
		store = s.ruin(n, store)
	}
	c := &client{id: id, hash: hash, plain: plain, journal: j, ctx: ctx}
	c.wipe = func() {
		if n.now() < n.plan.until {
			n.server.FlushAll()
			j.wiped()
			n.bite(wipe)
		}
	}
	if c.locker, err = core.New(listen(store, j, id)); err != nil {
		t.Fatal(err)
	}
	if hash {
		if c.jobs, err = once.New(c.locker); err != nil {
			t.Fatal(err)
		}
	}
	c.close = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := c.locker.Close(ctx); err != nil {
			j.mu.Lock()
			j.left = append(j.left, fmt.Sprintf("client %d: %v", id, err))
			j.mu.Unlock()
		}
		_ = redisStore.Close()
		_ = conn.Close()
	}
	return c
}

// trouble pauses clients, wipes the server and breaks connections at random times.
func trouble(n *network, j *journal, r *rand.Rand, clients int) {
	until := n.plan.until
	var wg sync.WaitGroup
	for range r.IntN(4) {
		at, who, long := time.Duration(r.Int64N(int64(until))), r.IntN(clients), lasting(r, 100*time.Millisecond, 3*longestTTL)
		wg.Go(func() {
			time.Sleep(at)
			n.pause(who, min(n.now()+long, until+longest))
		})
	}
	for range r.IntN(5) - 2 {
		at, all := time.Duration(r.Int64N(int64(until))), r.IntN(2) == 0
		wg.Go(func() {
			time.Sleep(at)
			n.server.FlushAll()
			j.wiped()
			n.bite(wipe)
			if all {
				n.breakAll()
			}
		})
	}
	wg.Wait()
}

// last acquires each key of a mutex or read-write lock once more, after the last fault.
func (w *worker) last() {
	keys := []string{"mutex:0", "mutex:1"}
	if w.hash {
		keys = append(keys, "rw:0")
	}
	for _, key := range keys {
		var lease *core.Lease
		var h *hold
		// Each idle connection that has broken unnoticed costs an attempt.
		for try := 0; lease == nil && try < 20; try++ {
			lease, h = w.acquire(w.ctx, nil, key, store.All, store.All, core.TTL(longestTTL))
		}
		if lease == nil {
			w.journal.mu.Lock()
			last := w.journal.waits[len(w.journal.waits)-1]
			w.journal.stuck = append(w.journal.stuck, fmt.Sprintf("%s: it cannot be taken, although all is quiet: %+v", key, last))
			w.journal.mu.Unlock()
			continue
		}
		w.spend(lease)
		w.write(lease, h)
		w.release(lease, h)
	}
}

// finish closes all programs, and records what they leave behind.
func finish(n *network, j *journal, clients []*client) {
	for _, c := range clients {
		c.close()
	}
	time.Sleep(2*strictTTL + time.Minute)
	for _, key := range n.server.Keys() {
		value, _ := n.server.Get(key)
		head, _, _ := strings.Cut(value, "\tv ")
		fields := strings.Split(head, "\t")
		// The record of an answer outlasts the run. Only the next claim removes the
		// expired holds beside it.
		if strings.Contains(key, "once:") && strings.Contains(value, "\tr ") && !slices.ContainsFunc(fields, func(f string) bool {
			var since, ms int64
			name, text, _ := strings.Cut(f, " ")
			_, err := fmt.Sscan(text, &since, &ms)
			return name == "w" || strings.HasPrefix(name, "h:") && (err != nil || since/1000+ms > time.Now().UnixMilli())
		}) {
			continue
		}
		j.left = append(j.left, fmt.Sprintf("key %s (%v)", key, fields))
	}
	n.server.Close()
	// A client that is closed while it connects can leave a connection open. The garbage
	// collector closes sockets, but not pipes.
	n.mu.Lock()
	left := slices.Collect(maps.Keys(n.links))
	n.mu.Unlock()
	for _, l := range left {
		l.cut()
	}
	n.wg.Wait()
}
