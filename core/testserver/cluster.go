package testserver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ClusterNodeTimeout is the time after which the nodes of a Cluster consider a silent
// node dead. On a busy machine a living node can be silent for a second or two.
const ClusterNodeTimeout = 4 * time.Second

// NoFailover contains arguments for a cluster whose replicas never promote themselves.
// Failover and Takeover still promote a replica.
var NoFailover = []string{"--cluster-replica-no-failover", "yes"}

// Settled limits the time until the nodes of a cluster, or sentinels, agree. A sentinel
// does nothing for 30 seconds after a pause of 2 seconds (TILT mode, see
// https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/).
const Settled = 2 * time.Minute

// slots is the number of slots of a cluster.
const slots = 16384

// Cluster is a cluster of three masters that share the slots, and optionally one replica
// of each master. Its methods fail the test if the cluster does not carry them out. Each
// wait of a method lasts for at most Settled.
type Cluster struct {
	Nodes []*Redis // the first three start as masters; node i+3 replicates node i

	t testing.TB
}

// StartCluster starts a cluster, and waits until all nodes agree on it. args are added
// to the arguments that StartCluster sets for each node. StartCluster skips or fails
// the test like RequireRedis.
func StartCluster(t testing.TB, replicas bool, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, nil, replicas, args...)
}

// startCluster starts a cluster like StartCluster, and adds env to the environment of
// the nodes.
func startCluster(t testing.TB, env []string, replicas bool, args ...string) *Cluster {
	t.Helper()
	RequireRedis(t)
	c := &Cluster{t: t}
	n := 3
	if replicas {
		n = 6
	}
	for range n {
		c.Nodes = append(c.Nodes, startRedis(t, &Redis{env: env, args: append([]string{"--cluster-enabled", "yes",
			"--cluster-node-timeout", strconv.FormatInt(ClusterNodeTimeout.Milliseconds(), 10),
			// A replica may be promoted, however long ago it last heard from its master.
			"--cluster-replica-validity-factor", "0"}, args...)}))
	}
	for i, s := range c.Nodes {
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		if i < 3 {
			s.AddSlots(i*slots/3, (i+1)*slots/3-1)
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
	// Without its link, a node would not get the messages that others publish.
	for _, s := range c.Nodes {
		Eventually(t, Settled, "a node has a link to each other node", func() bool {
			text := s.Do("CLUSTER", "NODES").(string)
			return strings.Count(text, " connected") == n && !strings.Contains(text, "handshake")
		})
	}
	return c
}

// AddSlots assigns the slots from first to last to the server, which must be a node of a
// cluster.
func (s *Redis) AddSlots(first, last int) {
	s.t.Helper()
	add := []any{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE exists only since 7.0
	for slot := first; slot <= last; slot++ {
		add = append(add, slot)
	}
	s.Do(add...)
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var all []string
	for _, s := range c.Nodes {
		all = append(all, s.Addr)
	}
	return all
}

// AwaitOK waits until all answering nodes report that all slots are served, and agree
// on the masters of the slots.
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

// view returns the slots of each master, as this node sees them.
func (s *Redis) view() (string, error) {
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
	return sorted(ranges), nil
}

// Master returns the node that serves slot according to its own state. If an old master
// does not know its successor yet, Master returns the successor.
func (c *Cluster) Master(slot int) *Redis {
	c.t.Helper()
	var master *Redis
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

// AwaitSuccessor waits until slot has a master other than the server old, and then until
// the cluster agrees, as AwaitOK does. In Redis 7.0 the cluster may never agree if the
// successor won its last election less than two node timeouts ago.
func (c *Cluster) AwaitSuccessor(slot int, old *Redis) {
	c.t.Helper()
	Eventually(c.t, Settled, "the slot has another master", func() bool { return c.Master(slot) != old })
	c.AwaitOK()
}

// Serves returns a function that reports whether master had a slot when Serves was
// called.
func (c *Cluster) Serves(master *Redis) func(slot int) bool {
	c.t.Helper()
	var me clusterNode
	Eventually(c.t, Settled, "the master says what it serves", func() bool {
		var err error
		me, err = master.myself()
		return err == nil
	})
	return me.serves
}

// Replica returns a running replica of master, or nil.
func (c *Cluster) Replica(master *Redis) *Redis {
	c.t.Helper()
	id := nodeID(master)
	var replica *Redis
	Eventually(c.t, Settled, "every node that runs says whose replica it is", func() bool {
		all := true
		for _, s := range c.Nodes {
			me, err := s.myself()
			if err == nil && me.master == id {
				replica = s
				return true
			}
			all = all && (err == nil || !s.Running())
		}
		return all
	})
	return replica
}

// Failover promotes replica without losing a write. The old master stops accepting
// writes, and hands over when the replica has received all writes. Both servers must be
// running.
func (c *Cluster) Failover(replica *Redis) {
	c.t.Helper()
	// Masters vote only once in two node timeouts for a successor of the same master. A
	// failed attempt ends after five seconds.
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

// Takeover promotes replica without a vote of the masters, even if the replica has
// missed writes.
func (c *Cluster) Takeover(replica *Redis) {
	c.t.Helper()
	replica.Do("CLUSTER", "FAILOVER", "TAKEOVER")
	Eventually(c.t, Settled, "the replica is a master", replica.leads)
	c.AwaitOK()
}

func (s *Redis) leads() bool {
	me, err := s.myself()
	return err == nil && me.flags["master"] && len(me.slots) > 0
}
