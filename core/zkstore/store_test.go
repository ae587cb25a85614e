package zkstore_test

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// TestMain runs many tests at once, because most of them wait for time or for a server.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "8")
	}
	goleak.VerifyTestMain(m)
}

// session is a time-out that is long enough for a busy machine.
const session = 60 * time.Second

// newStore returns a Store with its own session.
func newStore(t testing.TB, addrs []string, opts ...zkstore.Option) *zkstore.Store {
	t.Helper()
	s, err := zkstore.New(testclient.ZooKeeper(t, session, addrs...), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func conformance(t *testing.T, connect func(t testing.TB) store.Store) {
	t.Helper()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			return func() store.Store { return connect(t) }
		},
		Unit:    400 * time.Millisecond, // long, because the tests share one busy server
		Without: []storetest.Feature{storetest.Records, storetest.Overtaking},
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	conformance(t, func(t testing.TB) store.Store { return newStore(t, []string{server}) })
}
