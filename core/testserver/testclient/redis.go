// Package testclient connects the client libraries of the kit's stores to servers of
// package testserver. It also reads the locks that package redisstore stores.
package testclient

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
)

// Redis returns a client with careful options: calls stop when their context is done,
// and are not repeated. edit may change the options. The client is closed after the
// test.
func Redis(t testing.TB, addr string, edit ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
	for _, e := range edit {
		e(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Idle makes the client's pool hold at least n idle connections. It does not affect the
// pool for pipelines.
func Idle(t testing.TB, client *redis.Client, n int) {
	t.Helper()
	testserver.Eventually(t, time.Minute, "the pool has idle connections", func() bool {
		for range n {
			conn := client.Conn() // holds a connection until it is closed
			defer conn.Close()
			if conn.Ping(t.Context()).Err() != nil {
				return false
			}
		}
		return true
	})
	testserver.Eventually(t, time.Minute, "they are idle", func() bool { return int(client.PoolStats().IdleConns) >= n })
}

// Cluster returns a client of the cluster with go-redis's default options, which edit
// may change. The client is closed after the test.
func Cluster(t testing.TB, cluster *testserver.Cluster, edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{Addrs: cluster.Addrs()}
	for _, e := range edit {
		e(o)
	}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() {
		_ = c.Close()
		awaitDials()
	})
	return c
}

// Sentinel returns a client that finds the master through the sentinels, with go-redis's
// default options, which edit may change. The client is closed after the test.
func Sentinel(t testing.TB, s *testserver.Sentinel, edit ...func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	o := &redis.FailoverOptions{MasterName: testserver.SentinelName, SentinelAddrs: s.SentinelAddrs()}
	for _, e := range edit {
		e(o)
	}
	c := redis.NewFailoverClient(o)
	t.Cleanup(func() {
		_ = c.Close()
		awaitDials()
	})
	return c
}

// awaitDials waits until go-redis's pools have noticed that they are closed, for at most
// two seconds. After failed dials the pools retry once a second, and notice the close
// only then.
func awaitDials() {
	stacks := make([]byte, 8<<20)
	for range 40 {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("pool.(*ConnPool).tryDial")) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
