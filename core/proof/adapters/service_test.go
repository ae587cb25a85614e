package adapters_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// service is one replica with its client, store and locker.
type service struct {
	*stage
	name   string
	locker *core.Locker
	store  *spied
	runs   *once.Once
	events *events
	front  front
	close  func()
}

// front is a server with an adapter, and its client.
type front interface {
	// call sends a request, and waits for its outcome. The client disconnects when ctx
	// is done.
	call(ctx context.Context, r request) answer
	// stop starts the shutdown, and returns when the shutdown has certainly begun. The
	// returned channel is closed when the shutdown is complete.
	stop() <-chan struct{}
	// redelivered waits until n requests have found their key busy. It returns at once
	// if the adapter does not redeliver such requests itself.
	redelivered(n int)
	close()
}

// fronts contains, by adapter, the function that starts its server.
var fronts = map[string]func(*service) front{
	"gin":    serveGin,
	"unary":  serveUnary,
	"stream": serveStream,
	"task":   serveTasks,
}

type request struct {
	order, key string
	timeout    time.Duration   // 0: none
	ended      <-chan struct{} // closed when the service has noticed the disconnect
	untried    bool            // a task is not retried
}

// answer is the client's view of the response.
type answer struct {
	outcome outcome
	text    string // the handler's text
	raw     string // everything that the client can see
	next    *answer
}

func (a answer) String() string { return fmt.Sprintf("%s %q (%s)", a.outcome, a.text, a.raw) }

// kept returns the stored text. This is the text of this answer, or of the run that
// replaced it.
func (a answer) kept() string {
	if a.next != nil {
		return a.next.text
	}
	return a.text
}

// rushes reports whether requests must wait for a busy key.
func (v *service) rushes() bool { return v.stage.cell.event == "rush" }

// spied is a store that records the owners and the leases of its claims. Both are secret.
type spied struct {
	*redisstore.Store

	mu     sync.Mutex
	owners map[string]bool // also contains the leases
}

func (s *spied) saw(claims ...store.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		s.owners[c.Owner], s.owners[c.Lease] = true, true
	}
}

func (s *spied) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.saw(c)
	return s.Store.Acquire(ctx, c)
}

type events struct {
	mu  sync.Mutex
	all []core.Event
}

func (e *events) Observe(_ context.Context, event core.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) count(kind core.Kind) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == kind {
			n++
		}
	}
	return n
}

// waited returns the number of leases that were acquired after a wait of at least this
// long.
func (e *events) waited(least time.Duration) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		if event.Kind == core.Acquired && event.Wait >= least {
			n++
		}
	}
	return n
}

func (e *events) said() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		all = append(all, fmt.Sprintf("%v %s %v", event.Kind, event.Name, event.Err))
	}
	return all
}

// serve starts a replica. In every third trial the client has default options.
func (s *stage) serve(name string) *service {
	s.t.Helper()
	v := &service{stage: s, name: name, events: &events{}}
	client := testclient.Redis(s.t, s.server.Addr, func(o *redis.Options) {
		if s.trial%3 == 0 {
			o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0
		}
	})
	store, err := redisstore.New(client, redisstore.WithPrefix(s.prefix))
	if err != nil {
		s.t.Fatal(err)
	}
	v.store = &spied{Store: store, owners: map[string]bool{}}
	if v.locker, err = core.New(v.store, core.WithObserver(v.events), core.WithDefaults(core.TTL(s.ttl))); err != nil {
		s.t.Fatal(err)
	}
	if v.runs, err = once.New(v.locker); err != nil {
		s.t.Fatal(err)
	}
	v.front = s.open(v)
	v.close = sync.OnceFunc(func() {
		v.front.close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = v.locker.Close(ctx)
		_ = store.Close()
	})
	s.t.Cleanup(v.close)
	return v
}
