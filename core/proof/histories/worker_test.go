package histories_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// workerEnv makes the test binary a worker. Its value is the worker's plan.
const workerEnv = "LOCKKIT_HISTORIES_WORKER"

type plan struct {
	Name, Addr, Register string
	Keys                 []string
	Lanes                int    // goroutines, each of which acquires locks one after the other
	Mistake              string // the store's mistake, see reporting; the judges must find it
}

// entry is a worker's report on one step, a line of JSON. Times are on the monotonic
// clock.
type entry struct {
	Lease   string `json:",omitempty"` // unique name of the acquire, also in its later entries
	Claim   string `json:",omitempty"` // the store's name of the claim
	Who     string // the goroutine; for calls of the store, the process
	Key     string
	Crowded bool `json:",omitempty"` // other acquires of its process may have been ahead of it
	// Step names the step. An acquire reports "call" before it and "acquire" after it.
	// A granted acquire then reports "hold" for each check of the context, "letgo"
	// before the release, and "release" after it. The calls to the store are "ask"
	// (Acquire), "leave" (Release) and "extend" (Extend). Each is reported when it
	// returns. Calls of the clean-up can follow "release".
	Step      string
	Call, Ret int64
	Outcome   string `json:",omitempty"`
	Token     uint64 `json:",omitempty"` // token of the lease, or of the grant for an "ask"
	Until     int64  `json:",omitempty"` // known local deadline; 0 if lost before Acquire returned
	Follows   bool   `json:",omitempty"` // for an acquire: its hold was passed on to it
	Wrong     string `json:",omitempty"` // an impossible event that the process itself observed
}

type worker struct {
	plan
	locker *core.Locker

	mu  sync.Mutex
	out *json.Encoder

	known   sync.Mutex
	asked   map[string]grant   // by the name of an acquire that sent its own request
	granted map[string][]grant // the last grants of each key
}

type grant struct {
	claim string
	token uint64
}

// mostGrants is the number of a key's grants that a worker remembers. A lease has one of
// the last grants, even if its process was stopped between the grant and the return of
// Acquire.
const mostGrants = 8

type lane struct {
	*worker
	name string
	to   *bufio.ReadWriter // connection to the register
	n    int
}

// work runs a worker with the given plan. After its standard input is closed, the worker
// finishes its work and exits.
func work(text string) int {
	w := &worker{out: json.NewEncoder(os.Stdout), asked: map[string]grant{}, granted: map[string][]grant{}}
	if err := json.Unmarshal([]byte(text), &w.plan); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: w.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	if w.locker, err = core.New(&reporting{Store: store, worker: w}, core.WithDefaults(core.TTL(ttl))); err != nil {
		panic(err)
	}
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	var wg sync.WaitGroup
	for i := range w.Lanes {
		conn, err := net.Dial("tcp", w.Register)
		if err != nil {
			panic(err)
		}
		l := &lane{worker: w, name: fmt.Sprintf("%s.%d", w.Name, i+1), to: bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))}
		wg.Go(func() {
			for !stop.Load() {
				l.turn()
			}
		})
	}
	wg.Wait()
	return 0
}

// say writes an entry. The parent gets the entry even if this process dies at its next
// step.
func (w *worker) say(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out.Encode(e) != nil {
		os.Exit(1) // the parent has exited
	}
}

func (w *lane) say(e entry) {
	e.Who = w.name
	w.worker.say(e)
}

// turn runs one acquire and, if it is granted, some work.
func (w *lane) turn() {
	w.n++
	e := entry{Lease: fmt.Sprintf("%s/%d", w.name, w.n), Crowded: w.Lanes > 1, Key: w.Keys[rand.N(len(w.Keys))], Step: "call", Call: mono()}
	if w.Lanes > 1 && rand.N(4) > 0 {
		// Most turns of a process's lanes use the same key, and switch to the next key
		// every 300 ms.
		e.Key = w.Keys[int(e.Call/int64(300*time.Millisecond))%len(w.Keys)]
	}
	w.say(e)
	wait := rand.N(ttl / 2)
	if rand.N(3) == 0 {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(named(e.Lease), 3*ttl)
	defer cancel()
	lease, err := w.locker.Acquire(ctx, e.Key, core.Wait(wait))
	e.Step, e.Ret, e.Outcome = "acquire", mono(), outcome(err)
	if err != nil {
		w.say(e)
		time.Sleep(rand.N(5 * time.Millisecond))
		return
	}
	e.Token, e.Until = lease.Token(), deadline(lease)
	if lease.Context().Err() != nil {
		e.Until = 0 // expired while the process was stopped: the deadline is unknown
	}
	w.identify(&e)
	if rand.N(8) == 0 { // a hold whose owner was read is not passed on
		if owner, _, _ := strings.Cut(lease.Owner(), "."); owner != e.Claim {
			e.Wrong = "its claim is " + owner
		}
	}
	w.say(e)
	w.hold(e, lease)
	w.say(entry{Lease: e.Lease, Key: e.Key, Step: "letgo", Call: mono()})
	r := entry{Lease: e.Lease, Key: e.Key, Step: "release", Call: mono()}
	err = lease.Release(context.Background())
	r.Ret, r.Outcome = mono(), outcome(err)
	w.say(r)
}

// identify finds the claim of a lease. This is the lease's own claim if the lease sent a
// request and has the grant's token. Otherwise it is the claim of the process's last
// grant that owns the lease's token.
func (w *worker) identify(e *entry) {
	w.known.Lock()
	defer w.known.Unlock()
	own, asked := w.asked[e.Lease]
	delete(w.asked, e.Lease)
	if asked && own.token == e.Token {
		e.Claim = own.claim
		return
	}
	for _, g := range slices.Backward(w.granted[e.Key]) {
		if g.token < e.Token && e.Token < g.token+store.TokenStep {
			e.Claim, e.Follows = g.claim, true
			return
		}
	}
	e.Claim, e.Wrong = "none of "+e.Lease, fmt.Sprintf("token %d belongs to no grant", e.Token)
}

// hold works under the lease: it checks the lease's context, and writes a moment later,
// as real work does.
func (w *lane) hold(e entry, lease *core.Lease) {
	steps := 1 + rand.N(3)
	if rand.N(100) == 0 {
		steps = 400 // long enough to be extended
	}
	for range steps {
		until := deadline(lease)
		if lease.Context().Err() != nil {
			return
		}
		w.say(entry{Lease: e.Lease, Key: e.Key, Step: "hold", Call: mono(), Until: until})
		time.Sleep(rand.N(2 * time.Millisecond))
		fmt.Fprintln(w.to, e.Key, e.Token, e.Lease)
		if w.to.Flush() != nil {
			os.Exit(1)
		}
		if _, err := w.to.ReadString('\n'); err != nil {
			os.Exit(1)
		}
	}
}

// deadline returns the lease's deadline on the monotonic clock, or a slightly earlier
// time.
func deadline(lease *core.Lease) int64 {
	now := mono()
	return now + int64(time.Until(lease.Deadline()))
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, core.ErrLost):
		return "lost"
	case errors.Is(err, core.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "gave up" // perhaps before any answer
	case errors.Is(err, core.ErrBusy):
		return "busy"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}
