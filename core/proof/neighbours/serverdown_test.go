package neighbours_test

import (
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestPlainKeys_ServersDown shows locks on three servers while servers are down. With
// one server down, each side is still refused while the other side holds the lock.
// Afterwards it gets the lock. With two servers down, neither side gets a lock.
func TestPlainKeys_ServersDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client string
		start  func(t testing.TB, addrs ...string) *neighbours.Driver
	}{
		{"redlock", neighbours.StartNode},
		{"redlock-5", neighbours.StartNode},
		{"redlock-5-using", neighbours.StartNode},
		{"redsync", startGo},
	} {
		t.Run(c.client, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			p := &pair{t: t, site: s, driver: c.start(t, s.addrs...), neighbour: neighbour{client: c.client}, locks: s.locks(t, "")}
			p.take("jane", "theirs", long)
			lease := p.acquire("ours")
			s.servers[0].Kill()
			if p.tries("ours") {
				t.Error("they took the lock beside the kit's")
			}
			p.refuses("theirs")
			p.take("joe", "theirs-later", long) // with two servers
			p.refuses("theirs-later")
			later := p.acquire("ours-later")
			if p.tries("ours-later") {
				t.Error("they took the lock beside the kit's")
			}
			p.unlock("joe", "theirs-later")
			p.release(p.acquire("theirs-later"))
			p.unlock("jane", "theirs")
			p.release(p.acquire("theirs"))
			for _, l := range []*core.Lease{lease, later} {
				p.release(l)
				p.take("jane", l.Key(), long)
				p.refuses(l.Key())
			}

			s.servers[1].Kill()
			if p.tries("nobody") {
				t.Error("they took a lock of one server")
			}
			if _, err := p.locks.TryAcquire(t.Context(), "nobody"); err == nil {
				t.Error("the kit took a lock of one server")
			}
			s.servers[1].Restart() // the kit's clean-up needs a majority
			tally.Note(t, tally.Facts{Part: "neighbours", Runs: 1, Faults: map[string]int{"server down": 2}, Violations: map[string]int{"overlaps": 0}})
		})
	}
}

// refuses waits until the lock is busy for the kit, and fails the test if the kit gets
// the lock.
func (p *pair) refuses(name string) {
	p.t.Helper()
	testserver.Eventually(p.t, limit, name+" is busy", func() bool {
		_, err := p.locks.TryAcquire(p.t.Context(), name)
		if err == nil {
			p.t.Fatalf("%s: the kit took the lock beside theirs", name)
		}
		return errors.Is(err, core.ErrBusy)
	})
}

// tries makes them try to take a lock while a server is down, and reports whether they
// got it. Their error counts as a refusal.
func (p *pair) tries(name string) bool {
	p.t.Helper()
	answer, err := p.ask("jim", "trylock", name, long)
	return err == nil && answer == "yes"
}
