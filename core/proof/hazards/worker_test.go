package hazards_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/leader"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// workerEnv makes the test binary a worker. Its value is the worker's plan.
const workerEnv = "LOCKKIT_HAZARDS_WORKER"

type plan struct {
	Name, Prefix string
	Addr         string // address of a Redis, or URL of a PostgreSQL
	Kind         string // kind of the servers at Addrs, see openSeveral; "" if Addr is set
	Addrs        []string
	Unlocked     bool // every claim is granted, which the oracles must notice
	Replicas     int  // number of replicas that must acknowledge a grant
	Plain        bool // plain keys
	Redisson     bool // Redisson's locks
}

// order is a command to a worker, a line of JSON on its standard input. A worker carries
// out its orders concurrently.
type order struct {
	ID       int
	Op       string
	Lease    int // ID of the order that acquired the lease
	Key      string
	TTL      time.Duration
	Hold     time.Duration
	Pause    time.Duration // pause after a hold
	Try      bool
	Fair     bool
	Fixed    bool
	N        int
	Register string
	Claim    store.Claim
}

func (o order) options() []core.AcquireOption {
	opts := []core.AcquireOption{core.TTL(o.TTL)}
	if o.Fair {
		opts = append(opts, core.Fair())
	}
	if o.Fixed {
		opts = append(opts, core.NoRenew())
	}
	return opts
}

// report is a worker's report on an order, a line of JSON on its standard output.
type report struct {
	ID    int
	Kind  string
	At    int64 // time on the monotonic clock
	OK    bool
	Token uint64
	Span  span
	Errs  []string // names of the sentinels that the error matches
	Text  string   // text of the error
	Count map[string]int
}

// is reports whether the report's error matches the named sentinel.
func (r report) is(name string) bool {
	for _, e := range r.Errs {
		if e == name {
			return true
		}
	}
	return false
}

var errorNames = map[string]error{
	"busy": core.ErrBusy, "lost": core.ErrLost, "closed": core.ErrClosed, "unavailable": core.ErrUnavailable,
	"invalid": core.ErrInvalid, "unsupported": core.ErrUnsupported,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

func failed(id int, kind string, err error) report {
	r := report{ID: id, Kind: kind, At: mono(), OK: err == nil}
	if err == nil {
		return r
	}
	r.Text = err.Error()
	for name, e := range errorNames {
		if errors.Is(err, e) {
			r.Errs = append(r.Errs, name)
		}
	}
	return r
}

// worker is a process that acquires locks as ordered.
type worker struct {
	plan
	client *redis.Client // set if Addr is a Redis; the same is true of store
	store  *counting
	locker *core.Locker
	stop   chan struct{} // closed by the order stop

	mu     sync.Mutex // guards the fields below, and standard output
	leases map[int]*core.Lease
	chair  *leader.Elector // the elector of the order lead
	out    *json.Encoder
}

// work runs a worker with the given plan. The worker exits when its standard input is
// closed, or gracefully after a SIGTERM.
func work(text string) int {
	w := &worker{leases: make(map[int]*core.Lease), out: json.NewEncoder(os.Stdout), stop: make(chan struct{})}
	if err := json.Unmarshal([]byte(text), &w.plan); err != nil {
		panic(err)
	}
	store, end, err := w.open()
	if err != nil {
		panic(err)
	}
	if w.locker, err = core.New(store, core.WithObserver(w)); err != nil {
		panic(err)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	go w.obey()
	<-term
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	w.say(failed(0, "closed", w.locker.Close(ctx)))
	end()
	return 0
}

func (w *worker) open() (store core.Store, end func(), err error) {
	if strings.HasPrefix(w.Addr, "postgres://") {
		pool, err := pgxpool.New(context.Background(), w.Addr)
		if err != nil {
			return nil, nil, err
		}
		store, err := pgstore.New(pool)
		return store, func() {
			_ = store.Close()
			pool.Close()
		}, err
	}
	if w.Kind != "" {
		return w.openSeveral()
	}
	w.client = redis.NewClient(&redis.Options{Addr: w.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	opts := []redisstore.Option{redisstore.WithPrefix(w.Prefix)}
	if w.Plain {
		opts = append(opts, redisstore.WithPlainKeys())
	}
	if w.Redisson {
		opts = append(opts, redisstore.WithRedisson())
	}
	if w.Replicas > 0 {
		opts = append(opts, redisstore.WithReplicas(w.Replicas, 500*time.Millisecond))
	}
	onRedis, err := redisstore.New(w.client, opts...)
	w.store = &counting{Store: onRedis, unlocked: w.Unlocked}
	return w.store, func() {
		_ = onRedis.Close()
		_ = w.client.Close()
	}, err
}

func (w *worker) obey() {
	w.say(report{Kind: "ready", At: mono()})
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if in.Decode(&o) != nil {
			os.Exit(0)
		}
		go w.do(o)
	}
}

func (w *worker) say(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(r)
}

func (w *worker) held(id int) *core.Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leases[id]
}

func (w *worker) do(o order) {
	switch o.Op {
	case "acquire":
		w.acquire(o)
	case "check":
		at := mono()
		w.say(report{ID: o.ID, Kind: "checked", At: at, OK: w.held(o.Lease).Context().Err() == nil})
	case "steps":
		w.steps(o)
	case "write":
		w.write(o)
	case "release":
		w.say(failed(o.ID, "released", w.held(o.Lease).Release(context.Background())))
	case "adopt":
		w.adopt(o)
	case "spin":
		w.spin(o)
	case "loop":
		w.loop(o)
	case "mix":
		w.mix(o)
	case "crowd":
		w.crowd(o)
	case "churn":
		w.churn(o)
	case "lead":
		w.lead(o)
	case "resign":
		w.resign(o)
	case "stop":
		close(w.stop)
	default:
		panic("no such order: " + o.Op)
	}
}

func (w *worker) acquire(o order) {
	take := w.locker.Acquire
	if o.Try {
		take = w.locker.TryAcquire
	}
	lease, err := take(context.Background(), o.Key, o.options()...)
	if err != nil {
		w.say(failed(o.ID, "refused", err))
		return
	}
	r := report{ID: o.ID, Kind: "acquired", At: mono(), OK: true, Token: lease.Token()}
	w.mu.Lock()
	w.leases[o.ID] = lease
	w.mu.Unlock()
	w.say(r)
	<-lease.Context().Done()
	w.say(failed(o.ID, "ended", context.Cause(lease.Context())))
}

// steps works under a lease, with a check before each write, until a check fails.
func (w *worker) steps(o order) {
	lease := w.held(o.Lease)
	to, err := dialRegister(o.Register)
	if err != nil {
		panic(err)
	}
	s := span{Key: lease.Key(), Who: w.Name, From: mono(), Token: lease.Token()}
	w.say(report{ID: o.ID, Kind: "working"})
	s.Until = guard(lease, time.Hour, func() {
		if _, err := to.write(lease.Token(), w.Name); err != nil {
			panic(err)
		}
	})
	r := failed(o.ID, "stopped", context.Cause(lease.Context()))
	r.Span = s
	w.say(r)
}

// guard relies on the lease for d, or until a check fails. It checks the lease before
// each step. It returns the time of the last check that found the lease held, or 0 if
// there was none.
func guard(lease *core.Lease, d time.Duration, step func()) (until int64) {
	for start := mono(); ; time.Sleep(time.Millisecond) {
		at := mono()
		if lease.Context().Err() != nil {
			return until
		}
		until = at
		if at-start >= int64(d) {
			return until
		}
		step()
	}
}

// write writes under a lease without checking whether the lease is held.
func (w *worker) write(o order) {
	to, err := dialRegister(o.Register)
	if err != nil {
		panic(err)
	}
	ok, err := to.write(w.held(o.Lease).Token(), w.Name)
	r := failed(o.ID, "wrote", err)
	r.OK = ok
	w.say(r)
}

// adopt acts as a copy of another machine: it continues with the same claim.
func (w *worker) adopt(o order) {
	ctx := context.Background()
	x := w.store.Store.Extend(ctx, []store.Claim{o.Claim})[0]
	r := failed(o.ID, "adopted", x.Err)
	if x.Err == nil {
		g, err := w.store.Store.Acquire(ctx, o.Claim)
		r = failed(o.ID, "adopted", err)
		r.Token = g.Token
	}
	w.say(r)
}
