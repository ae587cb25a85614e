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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

// workerEnv makes the test binary a worker; it holds a plan.
const workerEnv = "LOCKKIT_HISTORIES_WORKER"

// plan is what a worker is started with.
type plan struct {
	Name, Addr, Register string
	Keys                 []string
	Lanes                int  // how many goroutines take locks, one after the other each
	Unlocked             bool // every claim is granted: the judges must notice
}

// entry is what a worker says of one step, a line of JSON. Times are on the
// monotonic clock.
type entry struct {
	Lease   string // name of the acquire, unique; also of what follows it
	Who     string
	Key     string
	Crowded bool `json:",omitempty"` // others of its process may have stood before it
	// Step is "call" and then "acquire"; if that is granted "hold" for each look
	// at the context, "letgo" before the release, and "release".
	Step      string
	Call, Ret int64
	Outcome   string `json:",omitempty"`
	Token     uint64 `json:",omitempty"`
	Until     int64  `json:",omitempty"` // the local deadline, as it is known now
	Unknown   int    `json:",omitempty"` // calls of the store whose outcome stayed unknown meanwhile
}

// counting counts calls whose outcome is unknown. Unlocked, it locks nothing.
type counting struct {
	*redisstore.Store
	unlocked bool
	unknown  atomic.Int64
}

func (c *counting) note(err error) {
	for _, known := range []error{core.ErrBusy, core.ErrLost, core.ErrUnavailable, core.ErrInvalid} {
		if errors.Is(err, known) {
			return
		}
	}
	if err != nil {
		c.unknown.Add(1)
	}
}

func (c *counting) Acquire(ctx context.Context, claim core.Claim) (core.Grant, error) {
	if c.unlocked {
		return core.Grant{Owner: claim.Owner, Token: uint64(time.Now().UnixMicro()) / 20_000}, nil
	}
	g, err := c.Store.Acquire(ctx, claim)
	c.note(err)
	return g, err
}

func (c *counting) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	answers := c.Store.Extend(ctx, claims)
	for _, a := range answers {
		c.note(a.Err)
	}
	return answers
}

func (c *counting) Handover(ctx context.Context, from, to core.Claim) (core.Grant, error) {
	if c.unlocked {
		return core.Grant{}, core.ErrUnsupported
	}
	g, err := c.Store.Handover(ctx, from, to)
	c.note(err)
	return g, err
}

func (c *counting) Release(ctx context.Context, claim core.Claim) error {
	if c.unlocked {
		return nil
	}
	err := c.Store.Release(ctx, claim)
	c.note(err)
	return err
}

// worker is a process that takes locks.
type worker struct {
	plan
	store  *counting
	locker *core.Locker

	mu   sync.Mutex
	out  *json.Encoder
	last int64 // unknown outcomes so far
}

// lane takes one lock after the other.
type lane struct {
	*worker
	name string
	to   *bufio.ReadWriter // the register
	n    int
}

// work is the main of a worker. It ends when its standard input does.
func work(text string) int {
	w := &worker{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(text), &w.plan); err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: w.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	w.store = &counting{Store: store, unlocked: w.Unlocked}
	if w.locker, err = core.New(w.store, core.WithDefaults(core.TTL(ttl))); err != nil {
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
func (w *lane) say(e entry) {
	e.Who = w.name
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := w.store.unknown.Load(); now > w.last && e.Ret > 0 {
		e.Unknown, w.last = int(now-w.last), now
	}
	if w.out.Encode(e) != nil {
		os.Exit(1) // the parent is gone
	}
}

// turn is one acquire, and if it is granted some work.
func (w *lane) turn() {
	w.n++
	e := entry{Lease: fmt.Sprintf("%s/%d", w.name, w.n), Crowded: w.Lanes > 1, Key: w.Keys[rand.N(len(w.Keys))], Step: "call", Call: mono()}
	w.say(e)
	wait := rand.N(ttl / 2)
	if rand.N(3) == 0 {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
	defer cancel()
	lease, err := w.locker.Acquire(ctx, e.Key, core.Wait(wait))
	e.Step, e.Ret, e.Outcome = "acquire", mono(), outcome(err)
	if err != nil {
		w.say(e)
		time.Sleep(rand.N(5 * time.Millisecond))
		return
	}
	e.Token, e.Until = lease.Token(), deadline(lease)
	w.say(e)
	w.hold(e, lease)
	w.say(entry{Lease: e.Lease, Key: e.Key, Step: "letgo", Call: mono()})
	r := entry{Lease: e.Lease, Key: e.Key, Step: "release", Call: mono()}
	err = lease.Release(context.Background())
	r.Ret, r.Outcome = mono(), outcome(err)
	w.say(r)
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
	case errors.Is(err, core.ErrBusy):
		return "busy"
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}
