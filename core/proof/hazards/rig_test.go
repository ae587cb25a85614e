package hazards_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// site is a server that many trials share. Each trial has its own key.
type site struct {
	server *testserver.Redis
	tap    *tap
}

func newSite(t *testing.T, args ...string) *site {
	t.Helper()
	s := &site{server: testserver.StartRedis(t, args...)}
	// After one acquire, extension and release the server knows the scripts, so each
	// later call is one command.
	l := newLocker(t, s.server.Addr)
	lease := acquire(t, l, "warm-up")
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	s.tap = newTap(t, s.server)
	return s
}

// rig is a service that reaches the server through its own proxy, and another service
// that reaches the same server directly.
type rig struct {
	*site
	t      *testing.T
	key    string
	proxy  *testserver.Proxy
	locker *core.Locker // connected through the proxy
	events *recorder    // events of locker
	direct *core.Locker
	asks   inspector
	bit    *bites
}

// rig prepares a trial. Every second trial has a client with default options.
func (s *site) rig(t *testing.T, key string, n int, more ...func(*redis.Options)) *rig {
	t.Helper()
	r := &rig{site: s, t: t, key: key, proxy: testserver.NewRedisProxy(t, s.server.Addr), events: &recorder{}}
	edit := ways["careful"]
	if n%2 == 0 {
		edit = ways["default"]
	}
	client := testclient.Redis(t, r.proxy.Addr, append(more, edit)...)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.locker = lockerOf(t, client, nil, core.WithObserver(r.events))
	r.direct = newLocker(t, s.server.Addr)
	r.asks = inspect(t, s.server)
	return r
}

// inject sets a fault for the next call of a script on the rig's key.
func (r *rig) inject(script string, a testserver.Action) *testserver.Fault {
	return r.injectAll(script, a, 1)
}

// injectAll sets a fault for the next calls of a script on the rig's key. times is the
// number of these calls, and -1 means all.
func (r *rig) injectAll(script string, a testserver.Action, times int) *testserver.Fault {
	f := r.proxy.Inject(testserver.Match{Script: script, Arg: stored(r.key), Times: times}, a)
	r.t.Cleanup(func() {
		tally.Note(r.t, tally.Facts{Part: "processes", Runs: 1, Faults: map[string]int{
			"a message of " + script + " was lost, late or doubled": r.proxy.Times(f),
		}})
	})
	return f
}

// lossOf returns the kind of loss in trial n: a reply is lost with its connection, or
// silently.
func lossOf(n int) testserver.Action {
	if n/2%2 == 0 {
		return testserver.CloseReply
	}
	return testserver.DropReply
}
