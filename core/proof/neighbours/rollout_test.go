package neighbours_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/examples/recipes/rollout"
)

// replicaOf names the environment variable that makes the test's program a replica with
// the kit. Its value is the addresses of the servers.
const replicaOf = "LOCKKIT_NEIGHBOURS_REPLICA"

// serveReplica obeys the commands of a Driver: "trylock" and "unlock" with a release
// and a name. A release consists of its number in examples/recipes/rollout, a colon,
// and the prefix of the old keys. For Redisson's locks "redisson" stands for the
// prefix.
func serveReplica(addrs []string) {
	r := &kitReplica{held: make(map[string]hold)}
	for _, addr := range addrs {
		r.clients = append(r.clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	fmt.Println("0 ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		text, err := r.run(words[2], words[3], words[4])
		if err != nil {
			text = "error error " + strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Println(words[0], text)
	}
}

type kitReplica struct {
	clients []redis.UniversalClient
	held    map[string]hold // the held locks, by release and name
}

// hold is a held lock. Its work runs until leave is closed. Then left receives the work's
// error.
type hold struct {
	leave chan struct{}
	left  chan error
}

func (r *kitReplica) run(verb, release, name string) (string, error) {
	switch verb {
	case "trylock":
		lock, err := r.lock(release)
		if err != nil {
			return "", err
		}
		h, inside := hold{make(chan struct{}), make(chan error, 1)}, make(chan struct{})
		go func() {
			h.left <- lock(context.Background(), name, func(context.Context) error {
				close(inside)
				<-h.leave
				return nil
			})
		}()
		select {
		case <-inside:
			r.held[release+" "+name] = h
			return "yes", nil
		case err := <-h.left:
			if errors.Is(err, core.ErrBusy) {
				return "no", nil
			}
			return "", err
		}
	case "unlock":
		h := r.held[release+" "+name]
		close(h.leave)
		return "done", <-h.left
	}
	return "", fmt.Errorf("no verb %s", verb)
}

func (r *kitReplica) lock(release string) (rollout.Lock, error) {
	number, prefix, _ := strings.Cut(release, ":")
	opts := []redisstore.Option{redisstore.WithPlainKeys(), redisstore.WithPrefix(prefix)}
	if prefix == "redisson" {
		opts = []redisstore.Option{redisstore.WithRedisson()}
	}
	old, err := r.locks(opts...)
	if err != nil {
		return nil, err
	}
	usual, err := r.locks()
	if err != nil {
		return nil, err
	}
	switch number {
	case "1":
		return rollout.New(old), nil
	case "2":
		return rollout.Both(old, usual), nil
	}
	return rollout.New(usual), nil
}

// locks returns a Locker on the servers. An acquire does not wait for a busy key.
func (r *kitReplica) locks(opts ...redisstore.Option) (*core.Locker, error) {
	var nodes []store.Store
	for _, c := range r.clients {
		node, err := redisstore.New(c, opts...)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	all := nodes[0]
	if len(nodes) > 1 {
		var err error
		if all, err = redlock.New(nodes); err != nil {
			return nil, err
		}
	}
	return core.New(all, core.WithDefaults(core.Wait(0)))
}

// release runs one release of a service in a separate process.
type release struct {
	t           *testing.T
	title       string
	try, unlock func() (string, error)
}

// kit returns the release with this number in examples/recipes/rollout. The release runs
// in the replica d.
func kit(t *testing.T, d *neighbours.Driver, number, prefix, name string) *release {
	ask := func(verb string) func() (string, error) {
		return func() (string, error) { return d.Ask("replica", verb, number+":"+prefix, name) }
	}
	return &release{t, number, ask("trylock"), ask("unlock")}
}

// tries makes r try to take the lock, and fails the test unless the answer is want.
// beside is the release that may hold the lock.
func (r *release) tries(want string, beside *release) {
	r.t.Helper()
	if got, err := r.try(); got != want || err != nil {
		r.t.Errorf("release %s beside %s: got %s, %v, want %s", r.title, beside.title, got, err, want)
	}
}

func (r *release) leaves() {
	r.t.Helper()
	if _, err := r.unlock(); err != nil {
		r.t.Errorf("release %s: unlock: %v", r.title, err)
	}
}

func excludes(a, b *release) {
	a.t.Helper()
	for range 2 {
		a.tries("yes", b)
		b.tries("no", a)
		a.leaves()
		a, b = b, a
	}
}

// rollsOut shows that every two successive releases exclude each other, first rolling
// forward and then back. If release 2 is left out, the releases before and after it
// both enter.
func rollsOut(t *testing.T, theirs *release, addrs []string, prefix, name string) {
	t.Helper()
	replica := func() *neighbours.Driver {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(cmd.Environ(), replicaOf+"="+strings.Join(addrs, ","))
		return neighbours.Start(t, cmd)
	}
	one, other := replica(), replica()
	steps := []*release{theirs, kit(t, one, "1", prefix, name), kit(t, other, "2", prefix, name), kit(t, one, "3", prefix, name)}
	for i := range steps[1:] {
		excludes(steps[i], steps[i+1])
	}
	for i := len(steps) - 1; i > 0; i-- {
		excludes(steps[i], steps[i-1])
	}
	steps[1].tries("yes", steps[3])
	steps[3].tries("yes", steps[1])
	steps[3].leaves()
	steps[1].leaves()
}

// TestRollout takes the steps of examples/recipes/rollout from each client to the kit,
// and back. Two processes run the releases with the kit.
func TestRollout(t *testing.T) {
	t.Parallel()
	for _, d := range drivers {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, d.servers)
			driver := d.start(t, s.addrs...)
			for _, n := range d.clients {
				p, name := &pair{t: t, site: s, driver: driver, neighbour: n}, n.client+"-rollout"
				rollsOut(t, &release{t, n.client,
					func() (string, error) { return p.ask("jane", "trylock", name, long) },
					func() (string, error) { return p.ask("jane", "unlock", name) },
				}, s.addrs, n.prefix, name)
			}
		})
	}
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			jane := neighbours.StartRedisson(t, version, server.Addr).Thread("jane")
			rollsOut(t, &release{t, version,
				func() (string, error) { return jane.Begin("trylocknow", neighbours.RLock, "rollout").Answer() },
				func() (string, error) { return jane.Begin("unlock", neighbours.RLock, "rollout").Answer() },
			}, []string{server.Addr}, "redisson", "rollout")
		})
	}
	tally.Note(t, tally.Facts{Part: "neighbours", Runs: 1, Violations: map[string]int{"overlaps": 0}})
}
