package neighbours_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// short is the TTL of locks that expire in a test. long is the TTL of most other locks.
const (
	short = 3 * time.Second
	long  = 10 * time.Minute
)

// neighbour is a client whose locks are plain keys, with its row of the table.
type neighbour struct {
	row    string // first cell of the row; %s is the version
	pkg    string // text before the version in versions.txt or golang/go.mod
	client string // the driver's name of the client
	prefix string // text before the name in a lock's key
	shown  string // the prefix in the table
	renews bool   // the client extends its locks itself, so the tests delete a lock to make it lost
	mute   bool   // the client has no extend, but a context or signal
}

// drivers lists the drivers of clients with plain keys: how to start each, the number of
// its servers, and its clients.
var drivers = []struct {
	name    string
	servers int
	start   func(t testing.TB, addrs ...string) *neighbours.Driver
	clients []neighbour
}{
	{"python", 1, func(t testing.TB, addrs ...string) *neighbours.Driver { return neighbours.StartPython(t, addrs[0]) }, []neighbour{
		{row: "redis-py %s, `Lock`", pkg: "redis==", client: "redis-py"},
	}},
	{"node", 1, neighbours.StartNode, []neighbour{
		{row: "node-redlock %s", pkg: "redlock@", client: "redlock"},
		{row: "node-redlock %s", pkg: "redlock5@npm:redlock@", client: "redlock-5"},
		{row: "the same with `using`", client: "redlock-5-using", renews: true, mute: true},
	}},
	{"node on three servers", 3, neighbours.StartNode, []neighbour{
		{row: "node-redlock %s on three servers", pkg: "redlock@", client: "redlock"},
		{row: "node-redlock %s on three servers", pkg: "redlock5@npm:redlock@", client: "redlock-5"},
		{row: "the same with `using` on three servers", client: "redlock-5-using", renews: true, mute: true},
	}},
	{"spring", 1, func(t testing.TB, addrs ...string) *neighbours.Driver { return neighbours.StartSpring(t, addrs[0]) }, []neighbour{
		{row: "Spring Integration %s, `RedisLockRegistry`", pkg: "org.springframework.integration:spring-integration-redis:", client: "spring", prefix: "test:", shown: "its registry key and `:`"},
		{row: "the same with a renewal scheduler", client: "spring-renews", renews: true, prefix: "test:", shown: "its registry key and `:`"},
		{row: "ShedLock %s", pkg: "net.javacrumbs.shedlock:shedlock-provider-redis-spring:", client: "shedlock", prefix: "job-lock:test:", shown: "`job-lock:`, its environment and `:`"},
		{row: "the same with `safeUpdate(true)`", client: "shedlock-safe", prefix: "job-lock:test:", shown: "`job-lock:`, its environment and `:`"},
	}},
	{"go", 1, startGo, []neighbour{
		{row: "redsync %s", pkg: "github.com/go-redsync/redsync/v4 v", client: "redsync"},
		{row: "redislock %s", pkg: "github.com/bsm/redislock v", client: "redislock"},
		{row: "rueidislock %s, `KeyMajority: 1`", pkg: "github.com/redis/rueidis v", client: "rueidislock-1", prefix: "rueidislock:0:", shown: "`rueidislock:0:`", renews: true, mute: true},
	}},
	{"go on three servers", 3, startGo, []neighbour{
		{row: "redsync %s on three servers", pkg: "github.com/go-redsync/redsync/v4 v", client: "redsync"},
	}},
}

// title returns the first cell of the row.
func (n neighbour) title(t *testing.T) string {
	t.Helper()
	if n.pkg == "" {
		return n.row
	}
	for _, file := range []string{"versions.txt", "golang/go.mod"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, version, ok := strings.Cut(string(text), n.pkg); ok {
			return fmt.Sprintf(n.row, strings.Fields(version)[0])
		}
	}
	t.Fatalf("no version of %s", n.pkg)
	return ""
}

// startGo starts the driver of the clients in Go, which has its own module.
func startGo(t testing.TB, addrs ...string) *neighbours.Driver {
	t.Helper()
	program, err := golang()
	if err != nil {
		testserver.Missing(t, fmt.Sprintf("the clients in Go cannot be had: %v", err))
	}
	return neighbours.Start(t, exec.Command(program, addrs...))
}

// golang and clientgo build the drivers of the clients in Go, each once. The first
// build of client-go takes minutes.
var (
	golang   = sync.OnceValues(func() (program string, err error) { return build("golang", ".") })
	clientgo = sync.OnceValues(func() (program string, err error) { return build("clientgo", "-tags=clientgo", "./clientgo") })
)

func build(name string, args ...string) (program string, err error) {
	program = filepath.Join(scratch, name)
	cmd := exec.Command("go", append([]string{"build", "-o", program}, args...)...)
	cmd.Dir = "golang"
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

// TestPlainKeys shares locks with each client, and compares the results with the table in
// core/redisstore/README.md.
func TestPlainKeys(t *testing.T) {
	t.Parallel()
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, d.servers)
			driver := d.start(t, s.addrs...)
			rows := make([][]string, len(d.clients))
			t.Run("all clients", func(t *testing.T) {
				for i, n := range d.clients {
					t.Run(n.client, func(t *testing.T) {
						t.Parallel()
						p := &pair{t: t, site: s, driver: driver, neighbour: n, locks: s.locks(t, n.prefix)}
						rows[i] = p.meet()
					})
				}
			})
			if t.Failed() {
				return
			}
			for _, n := range d.clients {
				p := &pair{t: t, site: s, driver: driver, neighbour: n}
				p.take("killed", n.client+"-killed", short)
			}
			driver.Kill()
			for i, n := range d.clients {
				p := &pair{t: t, site: s, neighbour: n, locks: s.locks(t, n.prefix)}
				p.release(p.acquire(n.client + "-killed"))
				wantRow(t, append(rows[i], "free after its TTL")...)
				tally.Note(t, tally.Facts{Part: "neighbours", Runs: 1, Grants: 2 * turns, Faults: map[string]int{"kill": 1, "loss": 2}, Violations: map[string]int{"overlaps": 0}})
			}
		})
	}
}

// pair has the kit and a neighbour on the same servers. In the comments on its methods
// "they" and "their" mean the neighbour.
type pair struct {
	t      *testing.T
	site   *site
	driver *neighbours.Driver
	neighbour
	locks *core.Locker
}

// meet runs the tests of the pair, and returns the row of the table without its last
// column.
func (p *pair) meet() []string {
	left := p.leave()
	p.exclude()
	p.contend()
	p.inherit(left)
	shown := p.shown
	if shown == "" {
		shown = "none"
	}
	return []string{p.title(p.t), shown, "yes", p.keeps(), p.extendLost(), p.unlockLost(), p.again()}
}

// leave makes the kit take a lock that nobody extends, like the lock of a killed
// process.
func (p *pair) leave() *core.Lease {
	p.t.Helper()
	return p.acquire(p.client+"-left", core.TTL(short), core.NoRenew())
}

// inherit shows that they get a lock of the kit that has expired, and that the kit
// reports the loss.
func (p *pair) inherit(left *core.Lease) {
	p.t.Helper()
	testserver.Eventually(p.t, limit, "they get what the kit has left", func() bool { return p.try("jane", left.Key(), long) })
	p.lost(left)
	p.unlock("jane", left.Key())
}

// exclude shows that each side is refused while the other side holds the lock, and gets
// the lock afterwards.
func (p *pair) exclude() {
	p.t.Helper()
	name := p.client + "-exclude"
	p.take("jane", name, long)
	if _, err := p.locks.TryAcquire(p.t.Context(), name); !errors.Is(err, core.ErrBusy) {
		p.t.Errorf("got %v beside a lock of theirs, want busy", err)
	}
	p.unlock("jane", name)
	lease := p.acquireAll(name, core.TTL(5*short))
	if !p.site.extends(p.t, p.prefix+name) {
		p.t.Error("the kit did not extend its lock")
	}
	if p.try("jane", name, long) {
		p.t.Error("they took the lock beside the kit's")
	}
	p.release(lease)
	p.take("jane", name, long)
	p.unlock("jane", name)
}

// turns is the number of times that each side gets the lock in contend.
const turns = 20

// contend makes both sides take one lock again and again. It shows that the two sides
// never hold the lock at the same time.
func (p *pair) contend() {
	p.t.Helper()
	name := p.client + "-contend"
	var inside, overlaps atomic.Int32
	work := func() {
		if inside.Add(1) != 1 {
			overlaps.Add(1)
		}
		time.Sleep(time.Millisecond) // without exclusion the other side would enter now
		inside.Add(-1)
	}
	ours := make(chan error, 1)
	go func() {
		ours <- func() error {
			for range turns {
				ctx, cancel := context.WithTimeout(p.t.Context(), limit)
				lease, err := p.locks.Acquire(ctx, name, core.TTL(long))
				if err == nil {
					work()
					err = lease.Release(ctx)
				}
				cancel()
				if err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	for range turns {
		testserver.Eventually(p.t, limit, "they have a turn", func() bool { return p.try("jane", name, long) })
		work()
		p.unlock("jane", name)
	}
	if err := <-ours; err != nil {
		p.t.Error(err)
	}
	if n := overlaps.Load(); n != 0 {
		p.t.Errorf("%d of %d turns beside another one", n, 2*turns)
	}
}

// keeps returns "yes" if they extend a lock themselves, and "no" otherwise.
func (p *pair) keeps() string {
	p.t.Helper()
	name := p.client + "-keeps"
	p.take("jane", name, p.ttl())
	if !p.site.extends(p.t, p.prefix+name) {
		return "no"
	}
	p.unlock("jane", name)
	return "yes"
}

// ttl returns short, or a longer TTL if they extend the lock themselves.
func (p *pair) ttl() time.Duration {
	if p.renews {
		return 5 * short // so that a busy machine extends the lock in time
	}
	return short
}

// lose makes them lose a lock of that name to the kit. It deletes a lock that they extend
// themselves, and waits until any other lock expires.
func (p *pair) lose(name string) *core.Lease {
	p.t.Helper()
	p.take("jane", name, short)
	if p.renews {
		p.site.remove(p.t, p.prefix+name)
	} else {
		p.site.awaitFree(p.t, p.prefix+name)
	}
	return p.acquireAll(name)
}

// acquireAll does the same as acquire, and waits until each server has the lock. A
// majority is enough for acquire.
func (p *pair) acquireAll(name string, opts ...core.AcquireOption) *core.Lease {
	p.t.Helper()
	lease := p.acquire(name, opts...)
	testserver.Eventually(p.t, limit, "each server has the kit's lock", func() bool {
		return !slices.Contains(p.site.values(p.t, p.prefix+name), "")
	})
	return lease
}

// extendLost returns the table's text for the effect of their extend on a lock that the
// kit holds.
func (p *pair) extendLost() string {
	p.t.Helper()
	name := p.client + "-extend-lost"
	lease := p.lose(name)
	if p.mute {
		testserver.Eventually(p.t, limit, "they notice the loss", func() bool {
			gone, err := p.ask("jane", "gone", name)
			return err == nil && gone == "yes"
		})
		p.release(lease)
		return "its context or signal"
	}
	before := p.site.values(p.t, p.prefix+name)
	answer, err := p.ask("jane", "extend", name, long)
	said := p.said(answer, err)
	if slices.Equal(before, p.site.values(p.t, p.prefix+name)) {
		p.release(lease)
		return said
	}
	p.lost(lease)
	p.unlock("jane", name)
	return said + ", **takes it over**"
}

// unlockLost returns the table's text for the effect of their unlock on a lock that the
// kit holds.
func (p *pair) unlockLost() string {
	p.t.Helper()
	name := p.client + "-unlock-lost"
	lease := p.lose(name)
	answer, err := p.ask("jane", "unlock", name)
	if p.site.free(p.t, p.prefix+name) {
		p.lost(lease)
		return p.said(answer, err) + ", **deletes it**"
	}
	p.release(lease)
	return p.said(answer, err) + ", leaves it"
}

// again returns the table's text for the outcome of a second lock by the same thread.
func (p *pair) again() string {
	p.t.Helper()
	name := p.client + "-again"
	p.take("jane", name, long)
	if !p.try("jane", name, long) {
		p.unlock("jane", name)
		p.release(p.acquire(name))
		return "refused"
	}
	p.unlock("jane", name)
	if _, err := p.locks.TryAcquire(p.t.Context(), name); !errors.Is(err, core.ErrBusy) {
		p.t.Errorf("got %v after one of two unlocks, want busy", err)
	}
	p.unlock("jane", name)
	p.release(p.acquire(name))
	return "enters"
}

// said returns the table's text for their answer or error.
func (p *pair) said(answer string, err error) string {
	p.t.Helper()
	var thrown *neighbours.Error
	switch {
	case err == nil && answer == "no":
		return "empty"
	case err == nil:
		return "no error"
	case !errors.As(err, &thrown):
		p.t.Error(err)
	case thrown.Class != "error":
		return "`" + thrown.Class + "`"
	}
	return "an error"
}

// ask sends a command to the driver. Each client has its own threads.
func (p *pair) ask(who, verb string, args ...any) (string, error) {
	p.t.Helper()
	return p.driver.Ask(who+"-"+p.client, verb, append([]any{p.client}, args...)...)
}

func (p *pair) try(who, name string, ttl time.Duration) bool {
	p.t.Helper()
	answer, err := p.ask(who, "trylock", name, ttl)
	if err != nil {
		p.t.Fatalf("trylock: %v", err)
	}
	return answer == "yes"
}

func (p *pair) take(who, name string, ttl time.Duration) {
	p.t.Helper()
	if !p.try(who, name, ttl) {
		p.t.Fatalf("%s did not get the free lock %s", who, name)
	}
}

func (p *pair) unlock(who, name string) {
	p.t.Helper()
	if _, err := p.ask(who, "unlock", name); err != nil {
		p.t.Errorf("unlock: %v", err)
	}
}

// acquire takes a lock for the kit. The default TTL is long.
func (p *pair) acquire(name string, opts ...core.AcquireOption) *core.Lease {
	p.t.Helper()
	opts = append([]core.AcquireOption{core.TTL(long), core.Wait(limit)}, opts...)
	lease, err := p.locks.Acquire(p.t.Context(), name, opts...)
	if err != nil {
		p.t.Fatalf("acquire %s: %v", name, err)
	}
	return lease
}

func (p *pair) release(lease *core.Lease) {
	p.t.Helper()
	if err := lease.Release(p.t.Context()); err != nil {
		p.t.Errorf("release: %v", err)
	}
}

// lost shows that the kit reports the loss of lease, and does not touch the lock any
// more.
func (p *pair) lost(lease *core.Lease) {
	p.t.Helper()
	if err := lease.Extend(p.t.Context(), long); !errors.Is(err, core.ErrLost) {
		p.t.Errorf("extend: got %v, want lost", err)
	}
	if err := context.Cause(lease.Context()); !errors.Is(err, core.ErrLost) {
		p.t.Errorf("the context's cause: got %v, want lost", err)
	}
	before := p.site.values(p.t, p.prefix+lease.Key())
	if err := lease.Release(p.t.Context()); !errors.Is(err, core.ErrLost) {
		p.t.Errorf("release: got %v, want lost", err)
	}
	if after := p.site.values(p.t, p.prefix+lease.Key()); !slices.Equal(before, after) {
		p.t.Errorf("the release changed %q to %q", before, after)
	}
}

// TestMajorityOfKeys shows why rueidislock's usual locks cannot be shared. A lock
// consists of three keys, and rueidislock needs two of them. If it loses the key that
// the kit takes, it continues with the other two. While it has that key, a replica with
// KeyMajority: 1 is refused. While such a replica has the key, the usual lock is
// refused.
func TestMajorityOfKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	n := neighbour{row: "rueidislock %s", pkg: "github.com/redis/rueidis v", client: "rueidislock", prefix: "rueidislock:0:", renews: true}
	p := &pair{t: t, site: s, driver: startGo(t, s.addrs...), neighbour: n, locks: s.locks(t, n.prefix)}
	const name = "majority"
	p.take("jane", name, p.ttl())
	s.remove(t, n.prefix+name)
	lease := p.acquire(name)
	if !s.extends(t, "rueidislock:1:"+name) || !s.extends(t, "rueidislock:2:"+name) {
		t.Error("they gave up their other keys, want two holders")
	}
	if gone, err := p.ask("jane", "gone", name); err != nil || gone != "no" {
		t.Errorf("got %q, %v, want that they have not noticed", gone, err)
	}
	p.unlock("jane", name)
	p.release(lease)
	one := *p
	one.client = "rueidislock-1" // with KeyMajority: 1
	for _, x := range [][2]*pair{{&one, p}, {p, &one}} {
		x[0].take("jane", "mixed", p.ttl())
		if x[1].try("jane", "mixed", p.ttl()) {
			t.Errorf("%s entered beside %s", x[1].client, x[0].client)
		}
		x[0].unlock("jane", "mixed")
	}
	wantRow(t, n.title(t), "`rueidislock:0:`", "**not always**: it goes on with two of its three keys, beside a holder of the third")
	tally.Note(t, tally.Facts{Part: "neighbours", Runs: 1, Expected: map[string]int{"overlaps": 1}})
}

// wantRow fails the test unless the table in core/redisstore/README.md has a row with
// these cells.
func wantRow(t *testing.T, cells ...string) {
	t.Helper()
	page, err := os.ReadFile("../../redisstore/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for len(cells) < columns {
		cells = append(cells, "")
	}
	if row := "| " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(string(page), row) {
		t.Errorf("core/redisstore/README.md lacks what was seen:\n%s", row)
	}
}

const columns = 8
