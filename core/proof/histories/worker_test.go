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

// workerEnv makes the test binary a worker; it holds a plan.
const workerEnv = "LOCKKIT_HISTORIES_WORKER"

// plan is what a worker is started with.
type plan struct {
	Name, Addr, Register string
	Keys                 []string
	Lanes                int    // how many goroutines take locks, one after the other each
	Mistake              string // of the store, see telling; the judges must notice
}

// entry is what a worker says of one step, a line of JSON. Times are on the
// monotonic clock.
type entry struct {
	Lease   string `json:",omitempty"` // name of the acquire, unique; also of what follows it
	Claim   string `json:",omitempty"` // what the store knows it by
	Who     string // the goroutine; of the store's calls the process
	Key     string
	Crowded bool `json:",omitempty"` // others of its process may have stood before it
	// Step is "call" and then "acquire"; if that is granted "hold" for each look
	// at the context, "letgo" before the release, and "release". In between, and
	// from the clean-up after it too, come the calls of the store that can give or
	// take the key or confirm that it is held, when they have returned: "ask",
	// "leave" and "extend".
	Step      string
	Call, Ret int64
	Outcome   string `json:",omitempty"`
	Token     uint64 `json:",omitempty"` // of the lease; of an ask that of the grant
	Until     int64  `json:",omitempty"` // the local deadline, as it is known now; 0 if the lease was lost before Acquire returned
	Follows   bool   `json:",omitempty"` // of an acquire: its hold was passed on to it
	Wrong     string `json:",omitempty"` // what the process itself knows to be impossible
}

// worker is a process that takes locks.
type worker struct {
	plan
	locker *core.Locker

	mu  sync.Mutex
	out *json.Encoder

	known   sync.Mutex
	asked   map[string]grant   // by acquire that has asked itself
	granted map[string][]grant // the last of each key
}

// grant is a claim that was granted, and its token.
type grant struct {
	claim string
	token uint64
}

// mostGrants is how many grants of a key a worker remembers. A lease has one of the
// last, even if its process stood between the grant and the return of Acquire.
const mostGrants = 8

// lane takes one lock after the other.
type lane struct {
	*worker
	name string
	to   *bufio.ReadWriter // the register
	n    int
}

// work is the main of a worker. It ends when its standard input does.
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
	if w.locker, err = core.New(&telling{Store: store, worker: w}, core.WithDefaults(core.TTL(ttl))); err != nil {
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

// say writes an entry. It is in the parent's hands before the next step, whatever
// becomes of this process.
func (w *worker) say(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out.Encode(e) != nil {
		os.Exit(1) // the parent is gone
	}
}

func (w *lane) say(e entry) {
	e.Who = w.name
	w.worker.say(e)
}

// turn is one acquire, and if it is granted some work.
func (w *lane) turn() {
	w.n++
	e := entry{Lease: fmt.Sprintf("%s/%d", w.name, w.n), Crowded: w.Lanes > 1, Key: w.Keys[rand.N(len(w.Keys))], Step: "call", Call: mono()}
	if w.Lanes > 1 && rand.N(4) > 0 {
		// The lanes of a process come together, and move on to another key.
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
		e.Until = 0 // it expired while the process stood: the deadline is only known to be past
	}
	w.identify(&e)
	if rand.N(8) == 0 { // a hold whose owner was told is not passed on
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

// identify finds the claim of a lease: its own if it has asked and has the token of
// the grant, and else that of the last grant of its process that owns its token.
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

// hold works under the lease: it looks at its context, and writes a moment later,
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

// deadline is the lease's, on the monotonic clock, and rather too early.
func deadline(lease *core.Lease) int64 {
	now := mono()
	return now + int64(time.Until(lease.Deadline()))
}

// outcome names what an error matches.
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
