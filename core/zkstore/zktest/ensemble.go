package zktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Ensemble is several servers that form one store.
type Ensemble struct {
	Servers []*Server
	t       testing.TB
}

// StartEnsemble runs three servers and waits until all serve.
func StartEnsemble(t testing.TB) *Ensemble {
	t.Helper()
	Require(t)
	e := &Ensemble{t: t}
	var lines strings.Builder
	for id := 1; id <= 3; id++ {
		s := newServer(t)
		s.Addr = freeAddr(t)
		e.Servers = append(e.Servers, s)
		_, peer, _ := strings.Cut(freeAddr(t), ":")
		_, election, _ := strings.Cut(freeAddr(t), ":")
		fmt.Fprintf(&lines, "server.%d=127.0.0.1:%s:%s\n", id, peer, election)
	}
	for i, s := range e.Servers {
		s.extra = lines.String()
		if err := os.WriteFile(filepath.Join(s.Dir, "myid"), fmt.Appendln(nil, i+1), 0o600); err != nil {
			t.Fatalf("zktest: %v", err)
		}
		if err := s.start(); err != nil {
			t.Fatalf("zktest: %v", err)
		}
	}
	for _, s := range e.Servers {
		if err := s.await(60 * time.Second); err != nil {
			t.Fatalf("zktest: %v", err)
		}
	}
	return e
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
