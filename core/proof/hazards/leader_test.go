package hazards_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestLeader runs elections among processes that die, stop, are cut off, resign and are
// replaced (hazard 63).
func TestLeader(t *testing.T) { // not parallel: dozens of processes starve tests with short leases
	t.Run("on Redis", func(t *testing.T) {
		testserver.RequireRedis(t)
		server := testserver.StartRedis(t)
		elections(t, electorate{addr: server.Addr, trials: 100, lease: time.Second, cut: func(t *testing.T) (*testserver.Proxy, string) {
			p := testserver.NewRedisProxy(t, server.Addr)
			return p, p.Addr
		}})
	})
	t.Run("on PostgreSQL", func(t *testing.T) {
		testserver.RequirePostgres(t)
		server := testserver.StartPostgres(t, "max_connections = 300")
		if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, server.URL())); err != nil {
			t.Fatal(err)
		}
		elections(t, electorate{addr: server.URL("pool_max_conns=3"), trials: 30, lease: 2 * time.Second, cut: func(t *testing.T) (*testserver.Proxy, string) {
			p := testserver.NewPostgresProxy(t, server.Addr)
			return p, server.URLAt(p.Addr, "pool_max_conns=3")
		}})
	})
}

type electorate struct {
	addr   string
	trials int           // trials of each scene
	lease  time.Duration // TTL in the scenes in which a leader is killed, stopped or cut off
	cut    func(t *testing.T) (*testserver.Proxy, string)
}

func elections(t *testing.T, on electorate) {
	// Another process leads after the death of the leader, and not before.
	t.Run("leader killed", func(t *testing.T) {
		t.Parallel()
		gaps := newGaps(t, "a leader was killed")
		trials(t, count(on.trials), func(t *testing.T, n int) {
			e := newElection(t, on.addr, fmt.Sprintf("killed:%d", n), on.lease)
			e.join("a", "b")
			first := e.await(1)
			time.Sleep(rand.N(e.ttl))
			gaps.add(e.kill(first.who), e.await(2))
		})
	})
	// When the paused leader runs again, it does not report that it leads.
	t.Run("leader paused", func(t *testing.T) {
		t.Parallel()
		bit := newBites(t, "a leader was stopped for longer than its lease", count(on.trials)*8/10)
		trials(t, count(on.trials), func(t *testing.T, n int) {
			e := newElection(t, on.addr, fmt.Sprintf("stopped:%d", n), on.lease)
			e.join("a", "b")
			first := e.await(1)
			time.Sleep(rand.N(e.ttl))
			e.member(first.who).pause()
			second := e.await(2)
			e.member(first.who).resume()
			end := e.member(first.who).await(e.orders[first.who], "term")
			if end.Span.Until < second.at {
				bit.add()
			} else {
				t.Errorf("%s believed to lead %v after %s did", first.who, ms(second.at, end.Span.Until), second.who)
			}
		})
	})
	t.Run("leader cut off", func(t *testing.T) {
		t.Parallel()
		bit := newBites(t, "a leader was cut off", count(on.trials)*8/10)
		trials(t, count(on.trials), func(t *testing.T, n int) {
			e := newElection(t, on.addr, fmt.Sprintf("cut:%d", n), on.lease)
			proxy, through := on.cut(t)
			e.joinBy(through, "a")
			first := e.await(1)
			e.join("b")
			proxy.Partition()
			second := e.await(2)
			end := e.member(first.who).await(e.orders["a"], "term")
			if end.Span.Until >= second.at {
				t.Errorf("it believed to lead %v after another one did", ms(second.at, end.Span.Until))
			}
			bit.add()
			proxy.Heal()
			// The work continues for a while after the term. After that the process
			// campaigns again.
			e.kill(second.who)
			e.await(3)
		})
	})
	t.Run("leader resigns", func(t *testing.T) {
		t.Parallel()
		gaps := newGaps(t, "a leader resigned")
		trials(t, count(on.trials), func(t *testing.T, n int) {
			e := newElection(t, on.addr, fmt.Sprintf("resigned:%d", n), time.Minute)
			e.join("a", "b")
			before := e.await(1)
			for terms := 2; terms < 6; terms++ {
				e.awaitCampaign(before.who)
				time.Sleep(rand.N(time.Second)) // a random moment of the term
				c := e.member(before.who)
				c.send(order{Op: "resign"})
				next := e.await(terms)
				if next.who == before.who {
					t.Errorf("%s resigned, and leads again", next.who)
				}
				gaps.add(c.last("term").At+int64(lingers), next)
				before = next
			}
		})
	})
	// Five processes are replaced one after the other. At most one leads at a time.
	t.Run("rolling replacement", func(t *testing.T) {
		t.Parallel()
		gaps := newGaps(t, "a leader stopped in order")
		trials(t, count(on.trials*3/10), func(t *testing.T, n int) {
			e := newElection(t, on.addr, fmt.Sprintf("rolling:%d", n), time.Minute)
			e.join("a1", "b1", "c1", "d1", "e1")
			terms := 1
			e.await(terms)
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				old := e.member(name + "1")
				leads := e.latest().who == old.name
				old.send(order{Op: "stop"})
				left := old.await(e.orders[old.name], "left")
				if !left.is("canceled") {
					t.Errorf("%s: Run returned %s", old.name, left.Text)
				}
				if leads {
					terms++
					gaps.add(left.At, e.await(terms))
				}
				e.kill(old.name)
				e.join(name + "2")
			}
			if n := len(e.begun()); n != terms {
				t.Errorf("%d terms began, want %d", n, terms)
			}
		})
	})
}

// lingers is the time for which the work continues after its term.
const lingers = 20 * time.Millisecond

type election struct {
	t      *testing.T
	addr   string
	key    string
	ttl    time.Duration
	oracle *oracle

	members map[string]*child
	orders  map[string]int // by name: the order to lead
	killed  map[string]bool
	spans   []span // the intervals of processes that were killed
}

// turn is the start of a term.
type turn struct {
	who   string
	at    int64
	token uint64
}

// newElection returns an election. When the test ends, its processes are killed and its
// terms are judged.
func newElection(t *testing.T, addr, key string, ttl time.Duration) *election {
	e := &election{t: t, addr: addr, key: key, ttl: ttl, members: make(map[string]*child), orders: make(map[string]int), killed: make(map[string]bool)}
	e.oracle = newOracle(t, 1)
	t.Cleanup(func() { // runs before the oracle's cleanup
		for name := range e.members {
			e.kill(name)
		}
		for _, s := range e.spans {
			e.oracle.add(s)
		}
		turns := e.begun()
		for i := 1; i < len(turns); i++ {
			if turns[i].token <= turns[i-1].token {
				t.Errorf("%s has token %d, and %s before it had %d", turns[i].who, turns[i].token, turns[i-1].who, turns[i-1].token)
			}
		}
	})
	return e
}

func (e *election) join(names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.joinBy(e.addr, name)
	}
}

// joinBy starts a process that reaches the server at addr, and returns when the process
// takes part.
func (e *election) joinBy(addr, name string) {
	e.t.Helper()
	c := newChild(e.t, plan{Name: name, Addr: addr})
	id := c.send(order{Op: "lead", Key: e.key, TTL: e.ttl, Pause: lingers})
	c.await(id, "candidate")
	e.members[name], e.orders[name] = c, id
}

func (e *election) member(name string) *child { return e.members[name] }

// kill kills a process, and returns the time. If the process leads, its term counts until
// that time.
func (e *election) kill(name string) (at int64) {
	at = mono()
	c := e.member(name)
	c.kill()
	if e.killed[name] {
		return at
	}
	e.killed[name] = true
	ended := make(map[uint64]bool)
	for _, r := range c.all("term") {
		ended[r.Span.Token] = true
		e.spans = append(e.spans, r.Span)
	}
	for _, r := range c.all("leading") {
		if !ended[r.Token] {
			e.spans = append(e.spans, span{Key: e.key, Who: name, From: r.At, Until: at, Token: r.Token})
		}
	}
	return at
}

// begun lists the terms that have begun, in order.
func (e *election) begun() []turn {
	var all []turn
	for name, c := range e.members {
		for _, r := range c.all("leading") {
			all = append(all, turn{name, r.At, r.Token})
		}
	}
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	return all
}

func (e *election) latest() turn {
	all := e.begun()
	return all[len(all)-1]
}

func (e *election) await(n int) turn {
	e.t.Helper()
	testserver.Eventually(e.t, patience, fmt.Sprintf("term %d begins", n), func() bool { return len(e.begun()) >= n })
	return e.begun()[n-1]
}

// awaitCampaign waits until the process that does not lead campaigns: for the first
// time, or again after its last term.
func (e *election) awaitCampaign(leader string) {
	e.t.Helper()
	testserver.Eventually(e.t, patience, "the other process campaigns", func() bool {
		for name, c := range e.members {
			if name != leader && c.latest("campaigning") > c.latest("term") {
				return true
			}
		}
		return false
	})
}

func (c *child) latest(kind string) int64 {
	all := c.all(kind)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].At
}

func (c *child) last(kind string) report {
	c.t.Helper()
	testserver.Eventually(c.t, patience, kind, func() bool { return len(c.all(kind)) > 0 })
	all := c.all(kind)
	return all[len(all)-1]
}

// gaps are the times without a leader. The tests log them, and depend only on their
// number.
type gaps struct {
	mu  sync.Mutex
	all []time.Duration
}

func newGaps(t *testing.T, what string) *gaps {
	g := &gaps{}
	bit := newBites(t, what, 10)
	t.Cleanup(func() {
		slices.Sort(g.all)
		if n := len(g.all); n > 0 {
			bit.n.Store(int64(n))
			t.Logf("%d times %s; without a leader: median %v, 90%% %v, longest %v", n, what, g.all[n/2], g.all[n*9/10], g.all[n-1])
		}
	})
	return g
}

func (g *gaps) add(from int64, until turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, time.Duration(until.at-from).Round(10*time.Microsecond))
}
