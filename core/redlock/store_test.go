package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMain runs many tests at once. Most of them wait for time or for a server, so they
// need few processors.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "16")
	}
	logging.Disable()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// without lists the features that a majority cannot serve.
var without = []storetest.Feature{storetest.Permits, storetest.Fair, storetest.Records, storetest.SoleRevoke, storetest.Carding}

func newStore(t testing.TB, nodes []store.Store, opts ...redlock.Option) *redlock.Store {
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

var virtual sync.Mutex

// virtually runs synctest.Test for one case at a time. A case in virtual time never
// idles, so many concurrent cases would delay the answers of servers to other tests.
func virtually(t *testing.T, f func(t *testing.T)) {
	virtual.Lock()
	defer virtual.Unlock()
	synctest.Test(t, f)
}

func memstores(n int) []store.Store {
	nodes := make([]store.Store, n)
	for i := range nodes {
		nodes[i] = memstore.New()
	}
	return nodes
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 4, 5} {
		for _, fencing := range []bool{false, true} {
			t.Run(fmt.Sprintf("of %d memstores fencing %v", n, fencing), func(t *testing.T) {
				if n != 3 || !fencing {
					tally.ProofOnly(t)
				}
				t.Parallel()
				lacks, opts := lacking(fencing)
				storetest.Run(t, storetest.Harness{
					New: func(t testing.TB) func() store.Store {
						nodes := memstores(n)
						return func() store.Store { return rested(newStore(t, nodes, opts...)) }
					},
					Unit: 100 * time.Millisecond, Wrap: virtually, Without: lacks,
				})
			})
		}
	}
}

// TestStoreAtALongDistance runs the suite on distant nodes with different delays.
func TestStoreAtALongDistance(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			nodes := memstores(5)
			return func() store.Store { return newStore(t, distant(t, nodes)) }
		},
		Unit: 100 * time.Millisecond, Wrap: virtually,
		Without: append(without[:len(without):len(without)], storetest.Fencing),
	})
}

func distant(t testing.TB, nodes []store.Store) []store.Store {
	far := make([]store.Store, len(nodes))
	for i, n := range nodes {
		faults := new(storetest.Faults)
		faults.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
			return storetest.Fault{Delay: time.Duration(i) * 200 * time.Microsecond, ReplyDelay: 300 * time.Microsecond}
		})
		t.Cleanup(faults.Wait)
		far[i] = storetest.Faulty(n, faults)
	}
	return far
}

// TestStoreWithAFrozenNode runs the suite with a node that never answers.
func TestStoreWithAFrozenNode(t *testing.T) {
	t.Parallel()
	for _, frozen := range []int{0, 2} {
		t.Run(fmt.Sprint("node ", frozen), func(t *testing.T) {
			if frozen > 0 {
				tally.ProofOnly(t)
			}
			t.Parallel()
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					nodes := memstores(3)
					return func() store.Store {
						faults := new(storetest.Faults)
						faults.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
							return storetest.Fault{Lose: storetest.LoseRequest}
						})
						own := append([]store.Store(nil), nodes...)
						own[frozen] = storetest.Faulty(nodes[frozen], faults)
						return newStore(t, own, redlock.WithNodeTimeout(20*time.Millisecond))
					}
				},
				Unit: 200 * time.Millisecond, Wrap: virtually,
				Without: append(without[:len(without):len(without)], storetest.Fencing),
			})
		})
	}
}

// TestStoreOverFaultyNodes makes one of five nodes lose every third reply to an
// acquire, and another get every acquire twice. All other requests arrive once and are
// answered before the next call. With more faults the outcome would be unknown.
func TestStoreOverFaultyNodes(t *testing.T) {
	t.Parallel()
	// With tokens the faults can make a second round's outcome unknown.
	for _, fencing := range []bool{false} {
		t.Run(fmt.Sprint("fencing ", fencing), func(t *testing.T) {
			t.Parallel()
			lacks, opts := lacking(fencing)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					nodes := memstores(5)
					return func() store.Store {
						own := append([]store.Store(nil), nodes...)
						var calls atomic.Int64
						for i, fault := range []func() storetest.Fault{
							func() storetest.Fault {
								if calls.Add(1)%3 == 0 {
									return storetest.Fault{Lose: storetest.LoseReply}
								}
								return storetest.Fault{}
							},
							func() storetest.Fault { return storetest.Fault{Twice: true} },
						} {
							own[i] = storetest.Faulty(own[i], faultsOf(t, fault, storetest.OpAcquire))
						}
						return rested(newStore(t, own, append(opts, redlock.WithNodeTimeout(20*time.Millisecond))...))
					}
				},
				Unit: 200 * time.Millisecond, Wrap: virtually, Without: lacks,
			})
		})
	}
}

// unhurried calls rest after each call of the Store, to wait for answers that are still
// in flight.
type unhurried struct {
	*redlock.Store
	rest func()
}

func (u unhurried) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	defer u.rest()
	return u.Store.Acquire(ctx, c)
}

func (u unhurried) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	defer u.rest()
	return u.Store.Extend(ctx, claims)
}

func (u unhurried) Release(ctx context.Context, c store.Claim) error {
	defer u.rest()
	return u.Store.Release(ctx, c)
}

// rested returns s with a wait after each call, in virtual time, until all nodes that
// answer at once have answered. Some cases release a claim by another Store, which does
// not know the calls of s in flight. If these calls arrived late, they would take the
// key again.
func rested(s *redlock.Store) unhurried {
	return unhurried{s, func() { time.Sleep(time.Nanosecond) }}
}

// unhurriedly returns s with a wait after each call, until the nodes have answered or
// two seconds have passed. Otherwise a release can overtake an acquire at a node. That
// node is then free although the others still have the key. The next claim gets that
// node, and asks the others again for half of a node's time. This can be longer than a
// case of the suite allows.
func unhurriedly(s *redlock.Store) unhurried {
	return unhurried{s, func() {
		for start := time.Now(); time.Since(start) < 2*time.Second; time.Sleep(time.Millisecond) {
			if claims, _ := s.Unsettled(); claims == 0 {
				return
			}
		}
	}}
}

// TestFaultyStore delays the extensions and releases of the store, and sends them
// twice. It does not double acquires. After a refusal of the first copy, the second
// copy could be granted. No caller would release that grant.
func TestFaultyStore(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	for _, fencing := range []bool{false, true} {
		t.Run(fmt.Sprint("fencing ", fencing), func(t *testing.T) {
			t.Parallel()
			lacks, opts := lacking(fencing)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) func() store.Store {
					nodes := memstores(3)
					faults := faultsOf(t, func() storetest.Fault {
						return storetest.Fault{Twice: true, Delay: 2 * time.Millisecond, ReplyDelay: time.Millisecond}
					}, storetest.OpExtend, storetest.OpRelease)
					return func() store.Store { return storetest.Faulty(rested(newStore(t, nodes, opts...)), faults) }
				},
				Unit: 100 * time.Millisecond, Wrap: virtually, Without: lacks,
			})
		})
	}
}

func faultsOf(t testing.TB, fault func() storetest.Fault, ops ...storetest.Op) *storetest.Faults {
	faults := new(storetest.Faults)
	faults.Hook(func(op storetest.Op, _ []store.Claim) storetest.Fault {
		if !slices.Contains(ops, op) {
			return storetest.Fault{}
		}
		return fault()
	})
	t.Cleanup(faults.Wait)
	return faults
}

// lacking returns the missing features of a Store with or without tokens, and its
// options.
func lacking(fencing bool) ([]storetest.Feature, []redlock.Option) {
	if fencing {
		return without, []redlock.Option{redlock.WithFencing()}
	}
	return append(without[:len(without):len(without)], storetest.Fencing), nil
}

// servers starts n servers. It also returns a function that creates a new store for
// each of them, with one client for each server.
func servers(t testing.TB, n int) ([]*testserver.Redis, func(t testing.TB) []store.Store) {
	t.Helper()
	var all []*testserver.Redis
	for range n {
		all = append(all, testserver.StartRedis(t))
	}
	var clients []*redis.Client
	for _, s := range all {
		clients = append(clients, testclient.Redis(t, s.Addr))
	}
	return all, func(t testing.TB) []store.Store {
		var nodes []store.Store
		for _, c := range clients {
			nodes = append(nodes, nodeOn(t, c))
		}
		return nodes
	}
}

func redisNode(t testing.TB, addr string) *redisstore.Store {
	t.Helper()
	return nodeOn(t, testclient.Redis(t, addr))
}

func nodeOn(t testing.TB, client *redis.Client) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestStoreOnServers runs the suite on three and five servers. Its groups run one after
// the other, because each has many parallel cases.
func TestStoreOnServers(t *testing.T) {
	tally.ProofOrMatrix(t)
	t.Parallel()
	for _, n := range []int{3, 5} {
		for _, fencing := range []bool{false, true} {
			if fencing != (n == 3) && os.Getenv("LONG") != "1" {
				continue // each takes half a minute, because holds have to expire
			}
			t.Run(fmt.Sprintf("of %d fencing %v", n, fencing), func(t *testing.T) {
				_, connect := servers(t, n)
				lacks, opts := lacking(fencing)
				lacks = append(lacks[:len(lacks):len(lacks)], storetest.SameToken)
				storetest.Run(t, storetest.Harness{
					New: func(t testing.TB) func() store.Store {
						return func() store.Store {
							return unhurriedly(fit(t, newStore(t, connect(t), append(opts, redlock.WithNodeTimeout(slow))...)))
						}
					},
					Unit: time.Second, Without: lacks,
				})
			})
		}
	}
	t.Run("of 3 with plain keys", onPlainKeys)
}

// TestUnservedKinds_RefusedEarly checks kinds of locks that no majority can serve. They
// are refused when the middleware is created.
func TestUnservedKinds_RefusedEarly(t *testing.T) {
	t.Parallel()
	l, err := core.New(newStore(t, memstores(3)))
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]core.AcquireOption{"Fair": core.Fair(), "Permits": core.Permits(1, 2), "Fenced": core.Fenced()} {
		if _, err := adapter.Check(l, o); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: got %v, want %v", name, err, store.ErrUnsupported)
		}
	}
	if _, err := once.New(l); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("once: got %v, want %v", err, store.ErrUnsupported)
	}
}
