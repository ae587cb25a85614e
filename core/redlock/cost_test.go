package redlock_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestCommandsOfACycle checks that a free lock costs each node one command to acquire
// and one to release. With tokens it costs two commands to acquire. A node is asked for
// its identity only on a new connection.
func TestCommandsOfACycle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts     []redlock.Option
		acquires int
	}{
		"without fencing": {nil, 1},
		"with fencing":    {[]redlock.Option{redlock.WithFencing()}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []store.Store
			var proxies []*testserver.Proxy
			for range 3 {
				p := testserver.NewRedisProxy(t, testserver.StartRedis(t).Addr)
				proxies, nodes = append(proxies, p), append(nodes, redisNode(t, p.Addr))
			}
			watched := &recorder{}
			s := fit(t, newStore(t, nodes, append(c.opts, redlock.WithNodeTimeout(slow), redlock.WithObserver(watched))...))
			// On a busy machine a cycle can fail, have a node that does not count, or
			// have a request without an answer. Each such cycle is repeated.
			late, unanswered := 0, 0
			cycle := func(i int) {
				c := claim(fmt.Sprint("c", i))
				c.Key = fmt.Sprint("order:", i)
				before := watched.seen()
				out := strings.Count(before, core.NodeOut.String()) > strings.Count(before, core.NodeBack.String())
				_, err := s.Acquire(t.Context(), c)
				settled(t, s)
				err = cmp.Or(err, s.Release(t.Context(), c))
				settled(t, s)
				_, n := s.UnderWay()
				if err != nil || n > unanswered || out || watched.seen() != before {
					late++
				}
				unanswered = n
				if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrInvalid) || late > 100 {
					t.Fatalf("got %v after %d late cycles", err, late)
				}
			}
			links := func(p *testserver.Proxy) map[int]bool {
				all := make(map[int]bool)
				for _, cmd := range p.Requests() {
					all[cmd.Link] = true
				}
				return all
			}
			former := make([]map[int]bool, len(proxies))
			for i, p := range proxies {
				former[i] = links(p)
			}
			cycle(0) // afterwards the servers know the scripts
			for _, p := range proxies {
				p.Forget()
			}
			cycles := 20
			if testing.Short() {
				cycles = 4
			}
			late = 0
			for i := 1; i <= cycles+late; i++ {
				cycle(i)
			}
			for i, p := range proxies {
				for script, want := range map[string]int{"acquire": c.acquires * cycles, "release": cycles} {
					if n := p.Count(testserver.Match{Script: script}); n < want || n > want+cycles/4+10*late {
						t.Errorf("node %d got %d times %s in %d cycles, want %d", i, n, script, cycles, want)
					}
				}
				// On a busy machine, a slow round trip makes the client open another
				// connection.
				opened := links(p)
				maps.DeleteFunc(opened, func(link int, _ bool) bool { return former[i][link] })
				if n := p.Count(infoCommand); n > len(opened) {
					t.Errorf("node %d was asked for its identity %d times, on %d new connections", i, n, len(opened))
				}
			}
		})
	}
}

// TestCallsOfACycle_DeadNode checks that dead nodes cause no additional calls to the
// other nodes. With and without dead nodes, each other node gets one acquire for each
// round and one release.
func TestCallsOfACycle_DeadNode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ nodes, dead int }{{3, 0}, {3, 1}, {5, 1}, {5, 2}} {
		for rounds, opts := range map[int][]redlock.Option{1: nil, 2: {redlock.WithFencing()}} {
			late(t, fmt.Sprintf("%d dead of %d %d rounds", c.dead, c.nodes, rounds), c.nodes, func(s *scene) {
				st := newStore(s, s.nodes, opts...)
				for _, f := range s.faults[:c.dead] {
					f.Hook(func(storetest.Op, []store.Claim) storetest.Fault {
						return storetest.Fault{Lose: storetest.LoseRequest}
					})
				}
				const cycles = 20
				for i := range cycles {
					claim := claim(fmt.Sprint("c", i))
					if _, err := st.Acquire(s.Context(), claim); err != nil {
						s.Fatalf("acquire: got %v", err)
					}
					// A node that the release overtakes gets another one after its grant.
					synctest.Wait()
					if err := st.Release(s.Context(), claim); err != nil {
						s.Fatalf("release: got %v", err)
					}
				}
				time.Sleep(time.Minute) // so that no call is left
				for i, f := range s.faults {
					if n := f.Calls(storetest.OpAcquire); n != rounds*cycles {
						s.Errorf("node %d got %d acquires in %d cycles, want %d", i, n, cycles, rounds*cycles)
					}
					// The release is repeated only at a dead node.
					if n := f.Calls(storetest.OpRelease); i >= c.dead && n != cycles || n < cycles {
						s.Errorf("node %d got %d releases in %d cycles, want %d", i, n, cycles, cycles)
					}
				}
			})
		}
	}
}

var infoCommand = testserver.Match{Command: "info"}

// settled waits until no request is in flight to a node, and no cleanup task is left.
func settled(t *testing.T, s *redlock.Store) {
	t.Helper()
	testserver.Eventually(t, patience, "nothing is on its way", func() bool {
		requests, _ := s.UnderWay()
		_, tasks := s.Unsettled()
		return requests+tasks == 0
	})
}
