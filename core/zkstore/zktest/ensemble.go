package zktest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Ensemble is several servers that form one store.
type Ensemble struct {
	Servers []*Server

	t     testing.TB
	links [][]*Link // by who follows and who leads
}

// StartEnsemble runs three servers and waits until all serve.
func StartEnsemble(t testing.TB) *Ensemble {
	t.Helper()
	return StartTicking(t, Tick)
}

// StartTicking is StartEnsemble with another tick. Sessions last 2 ticks at least.
func StartTicking(t testing.TB, tick time.Duration) *Ensemble {
	t.Helper()
	Require(t)
	// Somebody else may take a port between the look and the start.
	for try := 1; ; try++ {
		e := newEnsemble(t, tick)
		err := e.start()
		if err == nil {
			return e
		}
		for _, s := range e.Servers {
			s.Kill()
		}
		if try == 3 {
			t.Fatalf("zktest: %v", err)
		}
	}
}

// newEnsemble makes servers that do not run yet, and the links between them.
func newEnsemble(t testing.TB, tick time.Duration) *Ensemble {
	t.Helper()
	const n = 3
	e := &Ensemble{t: t, links: make([][]*Link, n)}
	// A port that is free again would be handed out again, so all stay taken until
	// the last one is.
	var taken []net.Listener
	defer func() {
		for _, l := range taken {
			l.Close()
		}
	}()
	take := func() string {
		t.Helper()
		l := listen(t)
		taken = append(taken, l)
		return l.Addr().String()
	}
	var peers, elections []string
	for range n {
		s := newServer(t)
		s.Addr, s.tick = take(), tick
		e.Servers = append(e.Servers, s)
		peers = append(peers, take())
		elections = append(elections, port(take()))
	}
	for i, s := range e.Servers {
		for j, peer := range peers {
			// To itself a server is where it is, to the others at the end of a link.
			var link *Link
			if i != j {
				link = newLink(t, peer)
				peer = link.addr
			}
			e.links[i] = append(e.links[i], link)
			s.extra += fmt.Sprintf("server.%d=127.0.0.1:%s:%s\n", j+1, port(peer), elections[j])
		}
	}
	return e
}

func (e *Ensemble) start() error {
	for i, s := range e.Servers {
		if err := os.WriteFile(filepath.Join(s.Dir, "myid"), fmt.Appendln(nil, i+1), 0o600); err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range e.Servers {
		if err := s.await(startLimit); err != nil {
			return err
		}
	}
	return nil
}

// Link is the way from a follower to the leader. Elections do not use it.
func (e *Ensemble) Link(follower, leader *Server) *Link {
	e.t.Helper()
	for i, s := range e.Servers {
		for j, l := range e.Servers {
			if s == follower && l == leader && i != j {
				return e.links[i][j]
			}
		}
	}
	e.t.Fatal("zktest: no such link")
	return nil
}

// Addrs are where clients connect to.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Leader waits until there is a leader and returns it.
func (e *Ensemble) Leader() *Server {
	e.t.Helper()
	for stop := time.Now().Add(60 * time.Second); time.Now().Before(stop); time.Sleep(20 * time.Millisecond) {
		for _, s := range e.Servers {
			if s.Mode() == "leader" {
				return s
			}
		}
	}
	e.t.Fatal("zktest: the ensemble has no leader")
	return nil
}

func port(addr string) string { return addr[len("127.0.0.1:"):] }
