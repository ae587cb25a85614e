package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ClusterNodeTimeout is when the nodes of a Cluster take a silent one for dead.
// On a busy machine a living node can be silent for a second or two.
const ClusterNodeTimeout = 4 * time.Second

// NoFailover are arguments for a cluster whose replicas never take over by
// themselves, for tests that do without.
var NoFailover = []string{"--cluster-replica-no-failover", "yes"}

// Settled bounds how long a cluster or its sentinels may take to agree.
const Settled = 60 * time.Second

// slots is how many a cluster has.
const slots = 16384

// Cluster is three masters that share the slots, and a replica of each if they
// were asked for. Its methods fail the test if the cluster does not do as it is
// told within a minute.
type Cluster struct {
	Nodes []*Server // the first three are masters at first; node i+3 replicates node i

	t testing.TB
}

// StartCluster starts a cluster, each node with the given arguments on top of
// its own, and waits until all of them agree on it. It skips the test like
// Start.
func StartCluster(t testing.TB, replicas bool, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, nil, replicas, args...)
}

// startCluster is StartCluster with more for the environment of the nodes.
func startCluster(t testing.TB, env []string, replicas bool, args ...string) *Cluster {
	t.Helper()
	Require(t)
	c := &Cluster{t: t}
	t.Cleanup(awaitDials)
	n := 3
	if replicas {
		n = 6
	}
	for range n {
		c.Nodes = append(c.Nodes, startNode(t, env, append([]string{"--cluster-enabled", "yes",
			"--cluster-node-timeout", strconv.FormatInt(ClusterNodeTimeout.Milliseconds(), 10),
			// A replica may take over however long it has heard nothing.
			"--cluster-replica-validity-factor", "0"}, args...)...))
	}
	for i, s := range c.Nodes {
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < 3 {
			s.Do("CLUSTER", "ADDSLOTSRANGE", i*slots/3, (i+1)*slots/3-1)
		}
		if i > 0 {
			c.Nodes[0].Do("CLUSTER", "MEET", "127.0.0.1", s.Port())
		}
	}
	for i := 3; i < n; i++ {
		s, master := c.Nodes[i], c.Nodes[i-3]
		id := nodeID(master)
		Eventually(t, Settled, "a replica knows its master", func() bool {
			return strings.Contains(s.Do("CLUSTER", "NODES").(string), id)
		})
		s.Do("CLUSTER", "REPLICATE", id)
	}
	c.AwaitOK()
	for i := 3; i < n; i++ {
		awaitLink(t, c.Nodes[i])
	}
	return c
}

// awaitDials gives pools of go-redis time to notice that they are closed: after
// failed dials they try again once a second, and look only then.
func awaitDials() {
	stacks := make([]byte, 8<<20)
	for range 40 {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("pool.(*ConnPool).tryDial")) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// startNode runs a server with a port that leaves room for the cluster's bus
// 10000 above it. Both are below those that the kernel gives to outgoing
// connections, so that a node can come back at its own.
func startNode(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir(), args: args, env: env}
	t.Cleanup(s.Kill)
	var err error
	for range 20 {
		s.Addr = fixedAddr(t)
		s.mu.Lock()
		err = s.run()
		s.mu.Unlock()
		if err == nil && s.Field("server", "process_id") == strconv.Itoa(s.Pid()) {
			return s
		}
		s.Kill()
	}
	t.Fatalf("redistest: no node can be started: %v", err)
	return nil
}

func fixedAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := 12000 + rand.N(10000)
		if free(port) && free(port+10000) {
			return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
	}
	t.Fatal("redistest: no free port")
	return ""
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Addrs is where all nodes can be reached.
func (c *Cluster) Addrs() []string {
	var all []string
	for _, s := range c.Nodes {
		all = append(all, s.Addr)
	}
	return all
}

// Client returns a client of the cluster with the defaults of go-redis, which
// edit may change. It is closed after the test.
func (c *Cluster) Client(edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	c.t.Helper()
	o := &redis.ClusterOptions{Addrs: c.Addrs()}
	for _, e := range edit {
		e(o)
	}
	client := redis.NewClusterClient(o)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// AwaitOK waits until every node that runs says that all slots are served, and
// all of them agree by whom.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	Eventually(c.t, Settled, "the cluster agrees", func() bool {
		views := make(map[string]bool)
		for _, s := range c.Nodes {
			info, err := s.ask("CLUSTER", "INFO")
			if err != nil {
				continue
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprint("cluster_slots_ok:", slots)) {
				return false
			}
			view, err := s.view()
			if err != nil {
				return false
			}
			views[view] = true
		}
		return len(views) == 1
	})
}

// view is who serves what, as this node sees it.
func (s *Server) view() (string, error) {
	text, err := s.ask("CLUSTER", "NODES")
	if err != nil {
		return "", err
	}
	ranges := make([]string, 0, 8)
	for line := range strings.Lines(text) {
		n := parseNode(line)
		if n.flags["handshake"] {
			return "", errors.New("not met yet")
		}
		if n.flags["master"] {
			for _, r := range n.slots {
				ranges = append(ranges, r+" "+n.id)
			}
		}
	}
	return joinSorted(ranges), nil
}

// Master returns the node that serves slot, as it sees itself. If an old master
// has not heard of its successor yet, it is the successor.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	var master *Server
	Eventually(c.t, Settled, "the slot has a master", func() bool {
		newest := -1
		for _, s := range c.Nodes {
			me, err := s.myself()
			if err == nil && me.flags["master"] && me.serves(slot) && me.epoch > newest {
				master, newest = s, me.epoch
			}
		}
		return master != nil
	})
	return master
}

// AwaitSuccessor waits until slot has another master than old.
func (c *Cluster) AwaitSuccessor(slot int, old *Server) {
	c.t.Helper()
	Eventually(c.t, Settled, "the slot has another master", func() bool { return c.Master(slot) != old })
	c.AwaitOK()
}

// Serves returns which slots master has at this moment.
func (c *Cluster) Serves(master *Server) func(slot int) bool {
	c.t.Helper()
	var me clusterNode
	Eventually(c.t, Settled, "the master says what it serves", func() bool {
		var err error
		me, err = master.myself()
		return err == nil
	})
	return me.serves
}

// Replica returns a running replica of master, nil if it has none.
func (c *Cluster) Replica(master *Server) *Server {
	c.t.Helper()
	id := nodeID(master)
	var replica *Server
	Eventually(c.t, Settled, "every node that runs says whose replica it is", func() bool {
		all := true
		for _, s := range c.Nodes {
			me, err := s.myself()
			if err == nil && me.master == id {
				replica = s
				return true
			}
			all = all && (err == nil || !s.runs())
		}
		return all
	})
	return replica
}

// runs tells whether the process is there and not paused.
func (s *Server) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.paused {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Failover makes replica the master of its master's slots without losing a
// write: the old master stops, and hands over when the replica has everything.
// Both have to be there.
func (c *Cluster) Failover(replica *Server) {
	c.t.Helper()
	// Masters vote for the same master's successor only once in two node
	// timeouts, and an attempt that fails ends after five seconds.
	var next time.Time
	Eventually(c.t, Settled, "the replica is a master", func() bool {
		if time.Now().After(next) {
			_, _ = replica.ask("CLUSTER", "FAILOVER")
			next = time.Now().Add(6 * time.Second)
		}
		return replica.leads()
	})
	c.AwaitOK()
}

// Takeover makes replica the master of its master's slots by its own decision,
// whatever it has missed.
func (c *Cluster) Takeover(replica *Server) {
	c.t.Helper()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	Eventually(c.t, Settled, "the replica is a master", replica.leads)
	c.AwaitOK()
}

// leads tells whether the node is a master with slots.
func (s *Server) leads() bool {
	me, err := s.myself()
	return err == nil && me.flags["master"] && len(me.slots) > 0
}

// ask sends one command to a server that may be dead or frozen, and returns its
// answer as text.
func (s *Server) ask(args ...any) (string, error) {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	return c.Do(ctx, args...).Text()
}
