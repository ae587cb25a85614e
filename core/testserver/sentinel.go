package testserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// SentinelName is the name that the sentinels use for the master.
const SentinelName = "locks"

// SentinelDownAfter is the default time after which a sentinel considers a silent server
// dead.
const SentinelDownAfter = 2 * time.Second

// Sentinel is a master, two replicas and three sentinels. Its methods fail the test if
// the servers do not carry them out. Each wait of a method lasts for at most Settled.
// The sentinels cannot be restarted.
type Sentinel struct {
	Nodes     []*Redis // the first is the initial master
	Sentinels []*Redis

	t testing.TB
}

// StartSentinel starts the servers and the sentinels, and waits until they know each
// other. args are added to the arguments that StartSentinel sets for each server.
// StartSentinel skips or fails the test like RequireRedis.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	RequireRedis(t)
	s := &Sentinel{t: t}
	for i := range 3 {
		a := args
		if i > 0 {
			a = append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(s.Nodes[0].Port())}, args...)
		}
		s.Nodes = append(s.Nodes, startRedis(t, &Redis{args: a}))
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

// startSentinel starts one sentinel for master on host, or on this machine if host is
// nil.
func startSentinel(t testing.TB, host *Host, master *Redis) *Redis {
	t.Helper()
	s := &Redis{Dir: tempDir(t), host: host}
	s.Process = newProcess(t, "redis-sentinel", s.Dir)
	s.ready = s.answers
	s.command = func() (*exec.Cmd, error) {
		ip, _, _ := net.SplitHostPort(s.Addr)
		masterIP, _, _ := net.SplitHostPort(master.Addr)
		file := filepath.Join(s.Dir, "sentinel.conf")
		text := fmt.Sprintf("port %[1]d\nbind %[6]s\nprotected-mode no\ndir %[2]s\n"+
			"sentinel monitor %[3]s %[7]s %[4]d 2\nsentinel down-after-milliseconds %[3]s %[5]d\n"+
			"sentinel failover-timeout %[3]s 10000\nsentinel parallel-syncs %[3]s 2\n",
			s.Port(), s.Dir, SentinelName, master.Port(), SentinelDownAfter.Milliseconds(), ip, masterIP)
		return host.Command(program("redis-server"), file, "--sentinel"), os.WriteFile(file, []byte(text), 0o600)
	}
	s.begin(func() {
		if s.Addr = local(freePort(t)); host != nil {
			s.Addr = host.addr(26379)
		}
	})
	return s
}

// SentinelAddrs returns the addresses of the sentinels.
func (s *Sentinel) SentinelAddrs() []string {
	var all []string
	for _, sentinel := range s.Sentinels {
		all = append(all, sentinel.Addr)
	}
	return all
}

// AwaitOK waits until all sentinels know each other, the same master and two replicas,
// and no failover is in progress.
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

// watched returns a sentinel's view of the master, by field name.
func (s *Redis) watched() map[string]string {
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

// Master returns the master. It waits until all sentinels name the same server, and
// this server considers itself the master.
func (s *Sentinel) Master() *Redis {
	s.t.Helper()
	var master *Redis
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
func (s *Sentinel) Replicas() []*Redis {
	s.t.Helper()
	var all []*Redis
	for master, i := s.Master(), 0; i < len(s.Nodes); i++ {
		if s.Nodes[i] != master {
			all = append(all, s.Nodes[i])
		}
	}
	return all
}

// AwaitFailover waits until the sentinels name a master other than the server old, and
// returns the new master.
func (s *Sentinel) AwaitFailover(old *Redis) *Redis {
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

// DownAfter sets the time after which the sentinels consider a silent server dead.
func (s *Sentinel) DownAfter(d time.Duration) {
	s.t.Helper()
	for _, sentinel := range s.Sentinels {
		sentinel.Do("SENTINEL", "SET", SentinelName, "down-after-milliseconds", d.Milliseconds())
	}
}

// Failover makes the sentinels promote a replica (SENTINEL FAILOVER), and returns the
// new master. The old master accepts writes until the sentinels demote it, some seconds
// after they announced the new master. Writes that the old master accepts after the
// promotion are lost.
func (s *Sentinel) Failover() *Redis {
	s.t.Helper()
	old := s.Master()
	// A sentinel refuses while it sees no suitable replica.
	Eventually(s.t, Settled, "a sentinel begins a failover", func() bool {
		_, err := s.Sentinels[0].ask("SENTINEL", "FAILOVER", SentinelName)
		// If the reply to the first attempt was lost, the failover may already be in
		// progress.
		return err == nil || strings.HasPrefix(err.Error(), "INPROG")
	})
	return s.AwaitFailover(old)
}

// HandOver makes a Failover that loses no write. First the old master stops accepting
// writes, until it is a replica. Then the replicas receive all writes of the old master,
// and the sentinels promote a replica.
func (s *Sentinel) HandOver() *Redis {
	s.t.Helper()
	old := s.Master()
	old.Do("CONFIG", "SET", "min-replicas-to-write", 100)
	replicas := s.Replicas()
	Eventually(s.t, Settled, "the replicas have everything", func() bool {
		end := old.offset("master_repl_offset")
		return !slices.ContainsFunc(replicas, func(r *Redis) bool { return r.offset("slave_repl_offset") < end })
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
