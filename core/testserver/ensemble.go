package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Ensemble consists of three ZooKeeper servers that form one replicated store. It stops
// with the test.
type Ensemble struct {
	Servers []*ZooKeeper

	t     testing.TB
	links [][]*Proxy // links[i][j]: from follower i to leader j
}

// StartEnsemble starts three servers and returns when all of them serve. It skips or
// fails the test like RequireZooKeeper. tick is the tick of the servers, and 0 stands
// for ZooKeeperTick. Sessions last at least 2 ticks.
func StartEnsemble(t testing.TB, tick time.Duration) *Ensemble {
	t.Helper()
	RequireZooKeeper(t)
	if tick == 0 {
		tick = ZooKeeperTick
	}
	// Another process may take a port between the check and the start.
	for try := 1; ; try++ {
		e, err := startEnsemble(t, tick)
		if err == nil {
			return e
		}
		for _, s := range e.Servers {
			s.Kill()
		}
		if try == 3 {
			t.Fatalf("testserver: zookeeper: %v", err)
		}
	}
}

func startEnsemble(t testing.TB, tick time.Duration) (*Ensemble, error) {
	t.Helper()
	const n = 3
	e := &Ensemble{t: t, links: make([][]*Proxy, n)}
	var peers, elections [n]int
	for i := range n {
		s := newZooKeeper(t, tick)
		s.Addr, peers[i], elections[i] = local(freePort(t)), freePort(t), freePort(t)
		e.Servers = append(e.Servers, s)
	}
	for i, s := range e.Servers {
		for j, peer := range peers {
			// A server connects to itself directly, and to the other servers through a
			// proxy.
			var link *Proxy
			if i != j {
				// An elected leader may not listen yet, so the proxy retries for 2 s. If
				// it closed the follower's connection instead, the follower would start
				// another election.
				link = newProxy(t, local(peer), 2*time.Second, func() wire { return bytesWire{} })
				peer = portOf(link.Addr)
			}
			e.links[i] = append(e.links[i], link)
			s.extra += fmt.Sprintf("server.%d=127.0.0.1:%d:%d\n", j+1, peer, elections[j])
		}
	}
	for i, s := range e.Servers {
		if err := os.WriteFile(filepath.Join(s.Dir, "myid"), fmt.Appendln(nil, i+1), 0o600); err != nil {
			return e, err
		}
		if err := locked(s.Process, s.launch); err != nil {
			return e, err
		}
	}
	for _, s := range e.Servers {
		if err := locked(s.Process, s.await); err != nil {
			return e, err
		}
	}
	return e, nil
}

func locked(p *Process, do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return do()
}

// Link returns the proxy between a follower and the leader. Elections do not use this
// proxy.
func (e *Ensemble) Link(follower, leader *ZooKeeper) *Proxy {
	e.t.Helper()
	i, j := slices.Index(e.Servers, follower), slices.Index(e.Servers, leader)
	if i < 0 || j < 0 || i == j {
		e.t.Fatal("testserver: no such link")
	}
	return e.links[i][j]
}

// Addrs returns the addresses for clients.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Leader waits until the ensemble has a leader, and returns the leader. It fails the
// test after a minute.
func (e *Ensemble) Leader() *ZooKeeper {
	e.t.Helper()
	var leader *ZooKeeper
	Eventually(e.t, Settled, "the ensemble has a leader", func() bool {
		i := slices.IndexFunc(e.Servers, func(s *ZooKeeper) bool { return s.Mode() == "leader" })
		if i >= 0 {
			leader = e.Servers[i]
		}
		return i >= 0
	})
	return leader
}
