package testclient

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/testserver"
)

// quiet is a logger that logs nothing, because clients log each server that a test has
// stopped.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// ZooKeeper returns a client whose session has begun. The client is closed after the
// test.
func ZooKeeper(t testing.TB, session time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, session, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("testclient: %v", err)
	}
	t.Cleanup(conn.Close)
	testserver.Eventually(t, 2*time.Minute, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
	return conn
}
