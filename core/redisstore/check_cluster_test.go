package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestCheckCluster checks that Check reports wrong clocks of a Cluster's masters and
// replicas (hazard 21).
func TestCheckCluster(t *testing.T) {
	t.Parallel()
	clock := testserver.NewClock(t, 1)
	cluster := clock.StartCluster(true, append(fit, testserver.NoFailover...)...)
	client := testclient.Cluster(t, cluster)
	s := newStore(t, client)
	// At first, the nodes of a new Cluster do not exchange all messages.
	testserver.Eventually(t, testserver.Settled, "Check passes with right clocks", func() bool {
		return s.Check(t.Context()) == nil
	})
	clock.Step(40 * time.Second)
	// A new Cluster learns of its replicas gradually.
	testserver.Eventually(t, testserver.Settled, "Check names every node", func() bool {
		client.ReloadState(t.Context())
		err := s.Check(t.Context())
		if err == nil {
			t.Fatal("the clocks were found fit")
		}
		for _, node := range cluster.Nodes { // nodes 3 to 5 are replicas
			if !strings.Contains(err.Error(), node.Addr+": its clock is 40 s ahead") {
				return false
			}
		}
		return true
	})
	// Check leaves out a frozen replica.
	cluster.Nodes[4].Pause()
	start := time.Now()
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "40 s ahead") {
		t.Errorf("with a frozen replica: got %v, want the others' clocks", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("with a frozen replica it took %v", took)
	}
	cluster.Nodes[4].Resume()
}
