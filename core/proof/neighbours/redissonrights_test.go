package neighbours_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// rightsOfJava returns the rights of the Java side that core/redisstore/README.md lists
// after the given words.
func rightsOfJava(t *testing.T, after string) []string {
	t.Helper()
	page, err := os.ReadFile("../../redisstore/README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(after + " `([^`]*)`").FindStringSubmatch(strings.Join(strings.Fields(string(page)), " "))
	if m == nil {
		t.Fatal("core/redisstore/README.md does not name the rights of the Java side")
	}
	return strings.Fields(m[1])
}

// allow gives the user "java" only these rights, on all servers. As on Redis 6.2, a new
// user may use all channels.
func allow(rights []string, servers ...*testserver.Redis) {
	args := []any{"ACL", "SETUSER", "java", "reset", "on", ">secret", "~order:*"}
	for _, r := range rights {
		args = append(args, r)
	}
	for _, s := range servers {
		s.Do("CONFIG", "SET", "acl-pubsub-default", "allchannels")
		s.Do(args...)
	}
}

const (
	onOneServer = "On one server the Java side needs"
	onCluster   = "In a Cluster of Redis 7 the Java side also needs"
)

// TestSharedLocks_RightsOfJava shows that the rights in core/redisstore/README.md
// suffice for Redisson beside the kit. Without the right to its latch, an unlock by
// Redisson fails.
func TestSharedLocks_RightsOfJava(t *testing.T) {
	t.Parallel()
	rights := rightsOfJava(t, onOneServer)
	const latch = "~redisson_unlock_latch:*"
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			allow(rights, server)
			s := newShared(t, testclient.Redis(t, server.Addr), version, "java:secret@"+server.Addr)
			jane := s.java.Thread("jane")
			eachKind(s)
			testserver.Eventually(t, limit, "the latches are deleted", func() bool {
				return len(s.asks.Keys(t.Context(), "redisson_unlock_latch:*").Val()) == 0
			})
			got, err := jane.ForceUnlock(neighbours.RLock, "order:1")
			s.javaIs(false, got, err)
			allow(slices.DeleteFunc(slices.Clone(rights), func(r string) bool { return r == latch }), server)
			s.must(jane.Lock(neighbours.RLock, "order:latch", time.Minute))
			if err := jane.Unlock(neighbours.RLock, "order:latch"); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("unlock without %s: got %v, want NOPERM", latch, err)
			}
			s.goIsKeptOut("order:latch")
		})
	}
}

// eachKind makes a thread of Redisson wait for each kind of lock, be woken by the kit,
// and unlock.
func eachKind(s *shared) {
	s.t.Helper()
	jane := s.java.Thread("jane")
	for _, kind := range []string{neighbours.RLock, neighbours.RFairLock, neighbours.RFencedLock, neighbours.RSpinLock} {
		name := "order:" + kind
		lease := s.goHolds(name)
		waits := jane.Begin("lock", kind, name, time.Duration(0))
		s.awaitListener(name, kind)
		s.release(lease)
		_, err := waits.Answer()
		s.must(err)
		s.goIsKeptOut(name)
		s.must(jane.Unlock(kind, name))
		s.release(s.goHolds(name))
	}
}

// TestSharedLocks_RightsOfJavaOnCluster shows that the rights in
// core/redisstore/README.md suffice for Redisson in a Cluster with replicas, and that
// no server refused a command. Without the right to WAIT, Redisson takes no lock.
func TestSharedLocks_RightsOfJavaOnCluster(t *testing.T) {
	t.Parallel()
	rights := append(rightsOfJava(t, onOneServer), rightsOfJava(t, onCluster)...)
	cluster := testserver.StartCluster(t, true, testserver.NoFailover...)
	if known := cluster.Nodes[0].Do("COMMAND", "INFO", "waitaof").([]any); len(known) > 0 && known[0] != nil {
		rights = append(rights, "+waitaof")
	}
	allow(rights, cluster.Nodes...)
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		var addrs []string
		for _, addr := range cluster.Addrs() {
			addrs = append(addrs, "java:secret@"+addr)
		}
		s := newShared(t, testclient.Cluster(t, cluster), version, addrs...)
		eachKind(s)
		for _, node := range cluster.Nodes {
			if refused := node.Do("ACL", "LOG"); len(refused.([]any)) > 0 {
				t.Errorf("%s: refused: %v", version, refused)
			}
			node.Do("ACL", "LOG", "RESET")
		}
		s.java.Kill()
	}
	allow(slices.DeleteFunc(rights, func(r string) bool { return r == "+wait" }), cluster.Nodes...)
	s := newShared(t, testclient.Cluster(t, cluster), neighbours.Redisson4, "java:secret@"+cluster.Nodes[0].Addr, "java:secret@"+cluster.Nodes[1].Addr)
	if err := s.java.Thread("jane").Lock(neighbours.RLock, "order:wait", time.Minute); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("lock without +wait: got %v, want NOPERM", err)
	}
}
