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

// service is one replica, with its client, store and locker.
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

// front is what an adapter serves, and a client of it.
type front interface {
	// call sends a request, and waits until it is known what it came to. The
	// client goes away when ctx ends.
	call(ctx context.Context, r request) answer
	// stop begins to shut down, and returns when that is certain. The channel is
	// closed when the shutdown is complete.
	stop() <-chan struct{}
	// redelivered waits until a request, sent n times, came back n times to a
	// busy key without its client's doing, where the adapter does such a thing.
	redelivered(n int)
	// close ends what is still there.
	close()
}

// fronts are the adapters.
var fronts = map[string]func(*service) front{
	"gin":    serveGin,
	"unary":  serveUnary,
	"stream": serveStream,
	"task":   serveTasks,
}

// request is what a client asks for.
type request struct {
	order, key string
	timeout    time.Duration   // 0: none
	ended      <-chan struct{} // closed when the service has noticed that the client is gone
	untried    bool            // a task is not tried again
}

// answer is what the client got.
type answer struct {
	outcome outcome
	text    string // of the handler
	raw     string // all that there is to see
	next    *answer
}

func (a answer) String() string { return fmt.Sprintf("%s %q (%s)", a.outcome, a.text, a.raw) }

// kept is the text of the answer that is given again: this one, or that of the
// run which took its place.
func (a answer) kept() string {
	if a.next != nil {
		return a.next.text
	}
	return a.text
}

// rushes tells that requests are to wait for a key that others have.
func (v *service) rushes() bool { return v.stage.cell.event == "rush" }

// spied is a store of which is known what it was asked.
type spied struct {
	*redisstore.Store

	mu     sync.Mutex
	owners map[string]bool // and leases, which are as secret
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

// events collects what an observer is told.
type events struct {
	mu  sync.Mutex
	all []core.Event
}

func (e *events) Observe(_ context.Context, event core.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// count is how many events there were of a kind.
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

// waited is how many leases were acquired after a wait of at least this long.
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

// said is what the events say.
func (e *events) said() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.all {
		all = append(all, fmt.Sprintf("%v %s %v", event.Kind, event.Name, event.Err))
	}
	return all
}

// serve starts a replica. Every third trial has a client with default options.
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
