package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// quiet is a logger that says nothing: clients tell of every server that a test
// has ended.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Connect returns a client whose session has begun. It is closed after the test.
func Connect(t testing.TB, session time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, session, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatalf("zktest: %v", err)
	}
	t.Cleanup(conn.Close)
	for stop := time.Now().Add(startLimit); conn.State() != zk.StateHasSession; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("zktest: no session with %v", addrs)
		}
	}
	return conn
}
