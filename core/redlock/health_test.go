package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// aged is a node that reports its age.
type aged struct {
	*memstore.Store
	mu    sync.Mutex
	info  store.NodeInfo
	since time.Time // the moment of the age in info; zero for an age that does not grow
	err   error     // the answer instead of a description
}

func (n *aged) Node(context.Context) (store.NodeInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	info := n.info
	if !n.since.IsZero() {
		info.Age += time.Since(n.since)
	}
	return info, n.err
}

func (n *aged) answer(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

// describe changes the description of the same server.
func (n *aged) describe(change func(i *store.NodeInfo)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.info)
}

func (n *aged) restart(age time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.info, n.since = store.NodeInfo{ID: n.info.ID + " again", Age: age}, time.Now()
}

func TestErrors_ReasonOfEachNode(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("quarantine locked before %v", early), func(t *testing.T) {
			t.Parallel()
			var servers []*aged
			var nodes []store.Store
			for i := range 5 {
				servers = append(servers, &aged{Store: memstore.New(), info: store.NodeInfo{ID: fmt.Sprint("life ", i), Age: time.Hour}})
				nodes = append(nodes, servers[i])
			}
			s := newStore(t, nodes, redlock.WithNodeTimeout(slow))
			if early {
				acquire(t, s, claim("before"))
				if err := s.Release(t.Context(), claim("before")); err != nil {
					t.Fatal(err)
				}
			}
			for i, server := range servers[:3] {
				server.restart(time.Duration(i) * time.Second)
			}
			// Each restart is found by a check of the servers or by a vote. If the
			// servers were described before, none of them can be older than a second.
			reasons := `node 0: restarted, and trusted again in 1 minute( 1 s)?, see WithQuarantine; node 1: restarted, and trusted again in (1 minute|59 s|58 s)`
			if early {
				reasons = `node 0(, 1)?(, 2)?: restarted, and trusted again in 1 minute( 1 s)?, see WithQuarantine`
			}
			want := regexp.MustCompile(`2 of 5 nodes answer and count, 3 are needed; 3 in quarantine, 0 out of reach; ` + reasons)
			var err error
			testserver.Eventually(t, 2*slow, "the error gives the reason of each node", func() bool {
				_, err = s.Acquire(t.Context(), claim("ours"))
				_ = s.Release(t.Context(), claim("ours"))
				if err == nil || errors.Is(err, store.ErrBusy) {
					t.Fatalf("got %v", err)
				}
				return want.MatchString(err.Error()) && !strings.Contains(err.Error(), "in time")
			})
			if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "node 0: restarted, and trusted again in 1 minute") {
				t.Errorf("check: got %v", err)
			}
		})
	}
	// Each node out of reach has its own reason.
	t.Run("nodes out of reach", func(t *testing.T) {
		t.Parallel()
		all, connect := servers(t, 3)
		s := fit(t, newStore(t, connect(t)))
		all[0].Kill()
		all[2].Pause()
		defer all[2].Resume()
		testserver.Eventually(t, patience, "the error gives both reasons", func() bool {
			_, err := s.Acquire(t.Context(), claim("ours"))
			if err == nil {
				t.Fatal("granted by one of three")
			}
			text := err.Error()
			return strings.Contains(text, "1 of 3 nodes answer and count, 2 are needed; 0 in quarantine, 2 out of reach") &&
				strings.Contains(text, "node 0: ") && strings.Contains(text, "refused") && strings.Contains(text, "node 2: ") && strings.Contains(text, "in time")
		})
	})
}

// recorder is an observer that records events as text.
type recorder struct {
	mu     sync.Mutex
	events []string
	errs   []error
}

func (o *recorder) Observe(_ context.Context, e core.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events, o.errs = append(o.events, fmt.Sprintf("%s %s", e.Name, e.Kind)), append(o.errs, e.Err)
}

func (o *recorder) seen() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.events, ", ")
}

// of returns the events of one node.
func (o *recorder) of(node string) (events []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if strings.HasPrefix(e, node+" ") {
			events = append(events, e)
		}
	}
	return events
}

// mortal is an aged node that can be down. It describes its server from memory, unless a
// fresh description is wanted.
type mortal struct {
	aged
	dead atomic.Bool
}

func (n *mortal) Node(ctx context.Context) (store.NodeInfo, error) {
	if n.dead.Load() && fresh.Wanted(ctx) {
		return store.NodeInfo{}, store.ErrUnavailable
	}
	return n.aged.Node(ctx)
}

func (n *mortal) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if n.dead.Load() {
		return []store.Extension{{Err: store.ErrUnavailable}}
	}
	return n.aged.Extend(ctx, claims)
}

func (n *mortal) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if n.dead.Load() {
		return store.Grant{}, store.ErrUnavailable
	}
	return n.aged.Acquire(ctx, c)
}

func (n *mortal) Release(ctx context.Context, c store.Claim) error {
	if n.dead.Load() {
		return store.ErrUnavailable
	}
	return n.aged.Release(ctx, c)
}

// mortals returns three old servers, and the same as nodes.
func mortals() (servers []*mortal, nodes []store.Store) {
	for i := range 3 {
		servers = append(servers, &mortal{aged: aged{Store: memstore.New(), info: store.NodeInfo{ID: fmt.Sprint("life ", i), Age: time.Hour}}})
		nodes = append(nodes, servers[i])
	}
	return servers, nodes
}

// TestRestartedNode_BackWhenItCounts restarts a server that answers a request
// before the Store has asked for its age. It checks that the node is reported as back
// only when it counts.
func TestRestartedNode_BackWhenItCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		o := &recorder{}
		s := newStore(t, nodes, redlock.WithObserver(o))
		acquire(t, s, claim("ours"))
		synctest.Wait() // all three nodes have the claim
		extend := func() {
			t.Helper()
			if got := s.Extend(t.Context(), []store.Claim{claim("ours")}); got[0].Err != nil {
				t.Fatal(got[0].Err)
			}
			synctest.Wait()
		}
		servers[1].dead.Store(true)
		extend()
		servers[1].dead.Store(false)
		servers[1].restart(0)
		for range 20 {
			extend()
			time.Sleep(100 * time.Millisecond)
		}
		if got := o.seen(); got != "node-1 node_out" {
			t.Errorf("got %q of a node that does not count yet", got)
		}
		for range 20 { // until the node is old enough to be trusted
			extend()
			time.Sleep(5 * time.Second)
		}
		if got := o.seen(); got != "node-1 node_out, node-1 node_back" {
			t.Errorf("got %q", got)
		}
	})
}

// TestDeadNode_BackWhenItAnswers checks that a node that is down is not reported as
// back, and not as fit, by a description that did not come from its server. Another node
// was restarted, so the nodes are checked all the time.
func TestDeadNode_BackWhenItAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := mortals()
		o := &recorder{}
		s := newStore(t, nodes, redlock.WithObserver(o))
		use := func(times int) {
			for range times {
				_, _ = s.Acquire(t.Context(), claim("ours"))
				_ = s.Release(t.Context(), claim("ours"))
				synctest.Wait()
				time.Sleep(200 * time.Millisecond)
			}
		}
		use(1)
		servers[0].restart(0)
		servers[1].dead.Store(true)
		use(20)
		if got := strings.Join(o.of("node-1"), ", "); got != "node-1 node_out" {
			t.Errorf("got %q of a dead node", got)
		}
		time.Sleep(2 * time.Minute) // until node 0 is trusted
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("check of a dead node: got %v", err)
		}
		servers[1].dead.Store(false)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("check of nodes that answer: %v", err)
		}
		use(20)
		if got := strings.Join(o.of("node-1"), ", "); got != "node-1 node_out, node-1 node_back" {
			t.Errorf("got %q of a node that answers again", got)
		}
	})
}

// TestRestartedNode_NotDescribed restarts two of three servers. After that they are not
// described any more, or report an age that cannot be true. Their votes must not count.
func TestRestartedNode_NotDescribed(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(n *aged){
		"description refused": func(n *aged) { n.answer(store.ErrUnsupported) },
		"age too high":        func(n *aged) { n.restart(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var nodes []store.Store
				var servers []*aged
				for i := range 3 {
					servers = append(servers, &aged{Store: memstore.New(), info: store.NodeInfo{ID: fmt.Sprint("life ", i), Age: time.Hour}})
					nodes = append(nodes, servers[i])
				}
				s := newStore(t, nodes)
				acquire(t, s, claim("ours"))
				if err := s.Release(t.Context(), claim("ours")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				restart(servers[0])
				restart(servers[1])
				if _, err := s.Acquire(t.Context(), claim("theirs")); err == nil || errors.Is(err, store.ErrBusy) {
					t.Errorf("two of three nodes were restarted: got %v", err)
				}
				if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("check: got %v", err)
				}
			})
		})
	}
}

// TestObserver_NeverDescribed checks that a node whose server is never described is not
// reported as back, because its votes do not count.
func TestObserver_NeverDescribed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var nodes []store.Store
		for i := range 3 {
			n := &aged{Store: memstore.New(), info: store.NodeInfo{ID: fmt.Sprint("life ", i), Age: time.Hour}}
			if i == 1 {
				n.answer(store.ErrUnavailable)
			}
			nodes = append(nodes, n)
		}
		o := &recorder{}
		s := newStore(t, nodes, redlock.WithObserver(o))
		for range 10 {
			acquire(t, s, claim("ours"))
			s.Extend(t.Context(), []store.Claim{claim("ours")})
			if err := s.Release(t.Context(), claim("ours")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(200 * time.Millisecond)
		}
		if got := o.seen(); got != "node-1 node_out" {
			t.Errorf("got %q", got)
		}
	})
}

// slowlyDescribed is an aged node. If held is set, its next description is delivered
// when held is closed, and its next grant comes after the beginning of that description.
type slowlyDescribed struct {
	aged
	held, begun atomic.Pointer[chan struct{}]
	acquires    atomic.Int64
}

func (n *slowlyDescribed) Node(ctx context.Context) (store.NodeInfo, error) {
	info, err := n.aged.Node(ctx)
	if held := n.held.Swap(nil); held != nil {
		close(*n.begun.Load())
		<-*held
	}
	return info, err
}

func (n *slowlyDescribed) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if begun := n.begun.Load(); begun != nil {
		<-*begun
	}
	n.acquires.Add(1)
	return n.aged.Acquire(ctx, c)
}

// TestRestartedNode_LateDescription delivers a description of a server that began before
// the server's restart, after a later description. The restarted node must get no claim.
// The servers are young: without the restart they may vote only as a new cluster.
func TestRestartedNode_LateDescription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var nodes []store.Store
		var servers []*slowlyDescribed
		for i := range 3 {
			servers = append(servers, &slowlyDescribed{aged: aged{Store: memstore.New(), info: store.NodeInfo{ID: fmt.Sprint("life ", i)}}})
			nodes = append(nodes, servers[i])
		}
		s := newStore(t, nodes)
		use := func(name string) error {
			_, err := s.Acquire(t.Context(), claim(name))
			_ = s.Release(t.Context(), claim(name))
			synctest.Wait()
			time.Sleep(200 * time.Millisecond)
			return err
		}
		if err := use("first"); err != nil {
			t.Fatal(err)
		}
		servers[0].restart(0)
		if err := use("second"); err != nil { // finds the restart
			t.Fatal(err)
		}
		held, begun := make(chan struct{}), make(chan struct{})
		deliver := sync.OnceFunc(func() { close(held) })
		defer deliver()
		servers[1].begun.Store(&begun)
		servers[1].held.Store(&held)
		if err := use("third"); err != nil { // begins a check of the servers
			t.Fatal(err)
		}
		servers[1].restart(0)
		if err := use("fourth"); err == nil || errors.Is(err, store.ErrBusy) {
			t.Fatalf("two of three nodes were restarted: got %v", err)
		}
		deliver()
		synctest.Wait()
		before := servers[1].acquires.Load()
		if err := use("fifth"); err == nil || errors.Is(err, store.ErrBusy) {
			t.Errorf("two of three nodes were restarted: got %v", err)
		}
		if n := servers[1].acquires.Load() - before; n != 0 {
			t.Errorf("a node in quarantine got %d claims", n)
		}
	})
}

func TestObserver_Nodes(t *testing.T) {
	t.Parallel()
	all, connect := servers(t, 3)
	o := &recorder{}
	const longest = 5 * time.Second
	s := fit(t, newStore(t, connect(t), redlock.WithNodeTimeout(slow), redlock.WithQuarantine(longest), redlock.WithObserver(o)))
	n := 0
	use := func() {
		n++
		c := claim(fmt.Sprint("ours", n))
		c.Key, c.TTL = fmt.Sprint("order:", n), longest
		_, err := s.Acquire(t.Context(), c)
		if err == nil {
			s.Extend(t.Context(), []store.Claim{c})
		}
		_ = s.Release(t.Context(), c)
	}
	// On a busy machine, any node can be out for a while.
	last := func(node string) string {
		events := o.of(node)
		return append([]string{""}, events...)[len(events)]
	}
	testserver.Eventually(t, patience, "all nodes count", func() bool {
		use()
		return !slices.ContainsFunc([]string{"node-0", "node-1", "node-2"}, func(node string) bool { return last(node) == node+" node_out" })
	})
	before := len(o.of("node-1"))
	all[1].Kill()
	testserver.Eventually(t, patience, "a node that is dead is out", func() bool {
		use()
		return last("node-1") == "node-1 node_out"
	})
	for range 20 {
		use()
	}
	all[1].Restart()
	testserver.Eventually(t, patience, "it is back", func() bool {
		use()
		return last("node-1") == "node-1 node_back"
	})
	got := o.of("node-1")[before:]
	for i, e := range got {
		if want := []string{"node-1 node_out", "node-1 node_back"}[i%2]; e != want {
			t.Errorf("event %d of the node is %q, want %q: %q", i, e, want, got)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, e := range o.events {
		if strings.HasSuffix(e, "out") == (o.errs[i] == nil) {
			t.Errorf("%s: %v", e, o.errs[i])
		}
	}
	if _, err := redlock.New(connect(t), redlock.WithObserver(nil)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an observer that is nil: got %v", err)
	}
}
