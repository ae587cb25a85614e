package redlock_test

import (
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/storetest"
)

// Most tests wait for time to pass or for a server, so many of them fit a few
// processors.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "16")
	}
	logging.Disable()
	goleak.VerifyTestMain(m)
}

// without is what no quorum can serve.
var without = []storetest.Feature{storetest.Permits, storetest.Fair, storetest.Records, storetest.Handover}

// newStore returns a Store that is closed after the test.
func newStore(t testing.TB, nodes []core.Store, opts ...redlock.Option) *redlock.Store {
	t.Helper()
	s, err := redlock.New(nodes, opts...)
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

func memstores(n int) []core.Store {
	nodes := make([]core.Store, n)
	for i := range nodes {
		nodes[i] = memstore.New()
	}
	return nodes
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5} {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprintf("of %d memstores, fencing %v", n, fencing), func(t *testing.T) {
				t.Parallel()
				lacks, opts := without, []redlock.Option{redlock.WithFencing()}
				if !fencing {
					lacks, opts = append(lacks[:len(lacks):len(lacks)], storetest.Fencing), nil
				}
				storetest.Run(t, storetest.Harness{
					New: func(t testing.TB) func() core.Store {
						nodes := memstores(n)
						return func() core.Store { return newStore(t, nodes, opts...) }
					},
					Unit: 100 * time.Millisecond, Wrap: synctest.Test, Without: lacks,
				})
			})
		}
	}
}

// The nodes are far away, at different distances.
func TestStoreAtALongDistance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() core.Store {
			nodes := memstores(5)
			return func() core.Store { return newStore(t, distant(t, nodes)) }
		},
		Unit: 100 * time.Millisecond, Wrap: synctest.Test,
		Without: append(without[:len(without):len(without)], storetest.Fencing),
	})
}

func distant(t testing.TB, nodes []core.Store) []core.Store {
	far := make([]core.Store, len(nodes))
	for i, n := range nodes {
		faults := new(storetest.Faults)
		faults.Hook(func(storetest.Op, []core.Claim) storetest.Fault {
			return storetest.Fault{Delay: time.Duration(i) * 200 * time.Microsecond, ReplyDelay: 300 * time.Microsecond}
		})
		t.Cleanup(faults.Wait)
		far[i] = storetest.Faulty(n, faults)
	}
	return far
}

// Every request arrives twice, and one node never answers.
func TestStoreWithAFrozenNode(t *testing.T) {
	t.Parallel()
	for _, frozen := range []int{0, 2} {
		t.Run(fmt.Sprint("node ", frozen), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() core.Store {
					nodes := memstores(3)
					return func() core.Store {
						faults := new(storetest.Faults)
						faults.Hook(func(storetest.Op, []core.Claim) storetest.Fault {
							return storetest.Fault{Lose: storetest.LoseRequest}
						})
						own := append([]core.Store(nil), nodes...)
						own[frozen] = storetest.Faulty(nodes[frozen], faults)
						return newStore(t, own, redlock.WithNodeTimeout(20*time.Millisecond))
					}
				},
				Unit: 200 * time.Millisecond, Wrap: synctest.Test,
				Without: append(without[:len(without):len(without)], storetest.Fencing),
			})
		})
	}
}

// servers starts n of them, and returns how to reach them with new stores.
func servers(t testing.TB, n int) ([]*redistest.Server, func(t testing.TB) []core.Store) {
	t.Helper()
	var all []*redistest.Server
	for range n {
		all = append(all, redistest.Start(t))
	}
	return all, func(t testing.TB) []core.Store {
		var nodes []core.Store
		for _, s := range all {
			nodes = append(nodes, redisNode(t, s.Addr))
		}
		return nodes
	}
}

func redisNode(t testing.TB, addr string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(redistest.Client(t, addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStoreOnServers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("of %d", n), func(t *testing.T) {
			t.Parallel()
			_, connect := servers(t, n)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() core.Store {
					return func() core.Store {
						return newStore(t, connect(t), redlock.WithNodeTimeout(time.Second))
					}
				},
				Unit:    500 * time.Millisecond,
				Without: append(without[:len(without):len(without)], storetest.Fencing),
			})
		})
	}
}
