package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
)

// SentinelName is what the sentinels call the master.
const SentinelName = "locks"

// SentinelDownAfter is when a sentinel takes a silent server for dead.
const SentinelDownAfter = 2 * time.Second

// Sentinel is a master, two replicas and three sentinels. Its methods fail the
// test if it does not do as it is told within a minute. The sentinels cannot be
// restarted.
type Sentinel struct {
	Nodes     []*Server // the first is the master at first
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts them all, the servers with the given arguments on top of
// their own, and waits until they know each other. It skips the test like Start.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	Require(t)
	s := &Sentinel{t: t}
	t.Cleanup(awaitDials)
	for i := range 3 {
		a := args
		if i > 0 {
			a = append([]string{"--replicaof", fmt.Sprintf("127.0.0.1 %d", s.Nodes[0].Port())}, args...)
		}
		s.Nodes = append(s.Nodes, startNode(t, nil, a...))
	}
	for _, replica := range s.Nodes[1:] {
		awaitLink(t, replica)
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, nil, s.Nodes[0]))
	}
	s.AwaitOK()
	return s
}

// startSentinel runs one sentinel for master, on host if that is not nil.
func startSentinel(t testing.TB, host *Host, master *Server) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir(), host: host}
	t.Cleanup(s.Kill)
	for range 20 {
		if s.Addr = fixedAddr(t); host != nil {
			s.Addr = host.addr(26379)
		}
		ip, _, _ := net.SplitHostPort(s.Addr)
		masterIP, _, _ := net.SplitHostPort(master.Addr)
		file := filepath.Join(s.Dir, "sentinel.conf")
		text := fmt.Sprintf("port %[1]d\nbind %[7]s\nprotected-mode no\ndir %[2]s\nlogfile %[3]s\n"+
			"sentinel monitor %[4]s %[8]s %[5]d 2\nsentinel down-after-milliseconds %[4]s %[6]d\n"+
			"sentinel failover-timeout %[4]s 10000\nsentinel parallel-syncs %[4]s 2\n",
			s.Port(), s.Dir, filepath.Join(s.Dir, "log"), SentinelName, master.Port(), SentinelDownAfter.Milliseconds(), ip, masterIP)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		cmd := host.Command("redis-server", file, "--sentinel")
		testserver.EndWithParent(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		s.mu.Lock()
		s.cmd, s.ended = cmd, ended
		s.mu.Unlock()
		if s.comesUp(ended) {
			return s
		}
		s.Kill()
	}
	t.Fatal("redistest: no sentinel can be started")
	return nil
}

// comesUp waits until the process answers, or has ended.
func (s *Server) comesUp(ended <-chan struct{}) bool {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		select {
		case <-ended:
			return false
		default:
		}
		if s.Field("server", "process_id") == strconv.Itoa(s.Pid()) {
			return true
		}
	}
	return false
}

// Client returns a client that finds the master through the sentinels, with the
// defaults of go-redis, which edit may change. It is closed after the test.
func (s *Sentinel) Client(edit ...func(*redis.FailoverOptions)) *redis.Client {
	s.t.Helper()
	o := &redis.FailoverOptions{MasterName: SentinelName}
	for _, sentinel := range s.Sentinels {
		o.SentinelAddrs = append(o.SentinelAddrs, sentinel.Addr)
	}
	for _, e := range edit {
		e(o)
	}
	client := redis.NewFailoverClient(o)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// AwaitOK waits until all sentinels know each other, the same master and two
// replicas, and no failover is under way.
func (s *Sentinel) AwaitOK() {
	s.t.Helper()
	Eventually(s.t, Settled, "the sentinels agree", func() bool {
		var master string
		for _, sentinel := range s.Sentinels {
			m := sentinel.watched()
			if m["num-other-sentinels"] != "2" || m["num-slaves"] != "2" || m["flags"] != "master" ||
				(master != "" && m["port"] != master) {
				return false
			}
			master = m["port"]
		}
		return true
	})
}

// watched is what a sentinel knows of the master.
func (s *Server) watched() map[string]string {
	s.t.Helper()
	fields := make(map[string]string)
	switch m := s.Do("SENTINEL", "MASTER", SentinelName).(type) {
	case map[any]any:
		for k, v := range m {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(m); i += 2 {
			fields[fmt.Sprint(m[i])] = fmt.Sprint(m[i+1])
		}
	}
	return fields
}

// Master returns the server that all sentinels call the master, once they do,
// and once it takes itself for one.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var master *Server
	Eventually(s.t, Settled, "there is a master", func() bool {
		port := s.Sentinels[0].watched()["port"]
		for _, sentinel := range s.Sentinels[1:] {
			if sentinel.watched()["port"] != port {
				return false
			}
		}
		for _, n := range s.Nodes {
			if strconv.Itoa(n.Port()) == port && n.Field("replication", "role") == "master" {
				master = n
				return true
			}
		}
		return false
	})
	return master
}

// Replicas returns the servers that are not the master.
func (s *Sentinel) Replicas() []*Server {
	s.t.Helper()
	var all []*Server
	for master, i := s.Master(), 0; i < len(s.Nodes); i++ {
		if s.Nodes[i] != master {
			all = append(all, s.Nodes[i])
		}
	}
	return all
}

// AwaitFailover waits until the sentinels have another master than old.
func (s *Sentinel) AwaitFailover(old *Server) *Server {
	s.t.Helper()
	Eventually(s.t, Settled, "there is another master", func() bool {
		port := strconv.Itoa(old.Port())
		for _, sentinel := range s.Sentinels {
			if sentinel.watched()["port"] == port {
				return false
			}
		}
		return true
	})
	return s.Master()
}

// Failover has the sentinels promote a replica (SENTINEL FAILOVER), and returns
// the new master. The old one takes writes until the sentinels get round to it,
// some seconds after the new one was announced, and those are lost.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	old := s.Master()
	// A sentinel refuses while it does not see a replica that will do.
	Eventually(s.t, Settled, "a sentinel begins a failover", func() bool {
		_, err := s.Sentinels[0].ask("SENTINEL", "FAILOVER", SentinelName)
		// An answer that was lost may have been a yes.
		return err == nil || strings.HasPrefix(err.Error(), "INPROG")
	})
	return s.AwaitFailover(old)
}

// HandOver is a Failover that loses no write: the old master refuses them from
// before its replicas have everything until it is a replica itself.
func (s *Sentinel) HandOver() *Server {
	s.t.Helper()
	old := s.Master()
	old.Do("CONFIG", "SET", "min-replicas-to-write", 100)
	replicas := s.Replicas()
	Eventually(s.t, Settled, "the replicas have everything", func() bool {
		end := old.offset("master_repl_offset")
		return !slices.ContainsFunc(replicas, func(r *Server) bool { return r.offset("slave_repl_offset") < end })
	})
	master := s.Failover()
	old.Do("REPLICAOF", "127.0.0.1", master.Port())
	awaitLink(s.t, old)
	old.Do("CONFIG", "SET", "min-replicas-to-write", 0)
	old.Do("CLIENT", "KILL", "TYPE", "normal")
	old.Do("CLIENT", "KILL", "TYPE", "pubsub")
	s.AwaitOK()
	return master
}

// offset is how far the server is in what its master sends.
func (s *Server) offset(field string) int {
	n, err := strconv.Atoi(s.Field("replication", field))
	if err != nil {
		return -1
	}
	return n
}

// CutReplicas makes sure that nothing that master is sent from now on reaches
// its replicas: they stand still, and their connections to it are gone, so that
// nothing waits in those either. Resume sets them free.
func CutReplicas(master *Server, replicas ...*Server) {
	master.t.Helper()
	for _, r := range replicas {
		r.Pause()
	}
	master.Do("CLIENT", "KILL", "TYPE", "replica")
}
