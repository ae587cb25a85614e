package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// errorReplies lists error replies. refused is set if the reply shows that the server
// has changed nothing. displaced is set if the client's idle connections are closed
// after the reply.
var errorReplies = []struct {
	reply     string
	refused   bool
	displaced bool
}{
	{"READONLY You can't write against a read only replica.", true, true},
	{"LOADING Redis is loading the dataset in memory", true, true},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true, true},
	{"CLUSTERDOWN The cluster is down", true, true},
	{"CLUSTERDOWN Hash slot not served", true, true},
	{"TRYAGAIN Multiple keys request during rehashing of slot", true, false},
	{"NOREPLICAS Not enough good replicas to write.", true, true},
	{"OOM command not allowed when used memory > 'maxmemory'.", true, false},
	{"NOAUTH Authentication required.", true, true},
	{"ERR Protocol error: unauthenticated bulk length", true, true},
	{"WRONGPASS invalid username-password pair or user is disabled.", true, false},
	{"NOPERM this user has no permissions to run the 'evalsha' command", true, false},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", true, false},
	{"BUSY Redis is busy running a script.", true, false},
	{"UNKILLABLE Sorry the script already executed write commands against the dataset.", true, false},
	{"WRONGTYPE Operation against a key holding the wrong kind of value", true, false},
	{"MOVED 3999 127.0.0.1:6381", true, true},
	{"ASK 3999 127.0.0.1:6381", true, false},
	{"CROSSSLOT Keys in request don't hash to the same slot", true, false},
	{"ERR max number of clients reached", true, false},
	{"ERR unknown command 'evalsha', with args beginning with: ", true, false},
	{"ERR The user executing the script can't run this command or subcommand script: ab, on @user_script:1.", true, false},
	{"ERR ACL failure in script: User locks has no permissions to run the 'hset' command script: ab, on @user_script:1.", true, false},
	{"ERR ACL failure in script: No permissions to access a channel script: ab, on @user_script:1.", true, false},
	{"ERR Error running script (call to f_ab): @user_script:40: @user_script: 40: -OOM command not allowed", true, false},
	{"ERR Error running script (call to f_ab): @user_script:40: -READONLY You can't write", true, true},
	{"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:40.", true, false},

	{"ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array", true, false},
	{"ERR command eval not support for normal user", true, false},
	{"ERR This instance has Lua scripting support disabled", true, false},

	{"ERR Error running script (call to f_ab): @user_script:40: attempt to index a nil value", false, false},
	{"ERR user_script:40: attempt to index a nil value script: ab, on @user_script:40.", false, false},
	{"ERR internal error", false, false},
	{"EXECABORT Transaction discarded because of previous errors.", false, false},
	{"SOMETHING new", false, false},
	{"SOMETHING long" + strings.Repeat(" and longer", 1000), false, false},
}

// TestErrorReplies answers each call with each reply of errorReplies (hazard 17).
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, c := range errorReplies {
		t.Run(c.reply[:min(len(c.reply), 100)], func(t *testing.T) {
			lock := claimed()
			calls := map[string]func() error{
				"acquire": func() error { _, err := r.store.Acquire(t.Context(), lock); return err },
				"extend":  func() error { return extend(r.store, lock) },
				"release": func() error { return r.store.Release(t.Context(), lock) },
			}
			for name, call := range calls {
				// An acquire whose SET is refused is repeated as a script.
				times := 1
				if name == "acquire" && c.refused {
					times = 2
				}
				f := r.proxy.Inject(testserver.Match{Script: name, Arg: lock.Lease, Times: times}, testserver.ErrorReply(c.reply))
				err := call()
				f.Await(t)
				if got := errors.Is(err, store.ErrUnavailable); got != c.refused {
					t.Errorf("%s: %v matches ErrUnavailable: %v, want %v", name, err, got, c.refused)
				}
				if n := len(err.Error()); n > 400 {
					t.Errorf("%s: the error has %d bytes", name, n)
				}
				var reply redis.Error
				if !errors.As(err, &reply) {
					t.Errorf("%s: %v does not carry the server's reply", name, err)
				}
				if n := r.proxy.Times(f); n != times {
					t.Errorf("%s was sent %d times", name, n)
				}
				if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost) {
					t.Errorf("%s: %v is an answer", name, err)
				}
				quiet(t, err, lock)
			}
		})
	}
	t.Run("long replies are cut", func(t *testing.T) {
		long := "SOMETHING long" + strings.Repeat(" and longer", 1000)
		for command, call := range map[string]func(s *redisstore.Store) error{
			"subscribe": func(s *redisstore.Store) error { _, err := s.Watch(t.Context(), claimed()); return err },
			"info":      func(s *redisstore.Store) error { return s.Check(t.Context()) },
		} {
			fresh := newRig(t, r.server, nil)
			fresh.proxy.Inject(testserver.Match{Command: command, Times: -1}, testserver.ErrorReply(long))
			if err := call(fresh.store); err == nil || len(err.Error()) > 400 || !strings.Contains(err.Error(), "SOMETHING") {
				t.Errorf("%s: got %.500v", command, err)
			}
		}
	})
	t.Run("script that stays unknown", func(t *testing.T) {
		lock := claimed()
		f := r.proxy.Inject(testserver.Match{Script: "acquire", Arg: lock.Lease, Times: -1}, testserver.ErrorReply("NOSCRIPT No matching script."))
		_, err := r.store.Acquire(t.Context(), lock)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		if n := r.proxy.Times(f); n != 3 {
			t.Errorf("sent %d times, want once as a SET, once by name and once by text", n)
		}
	})
	for name, action := range map[string]testserver.Action{
		"a closed connection": testserver.CloseRequest, "a closed connection after the call": testserver.CloseReply,
		"a reply that is not RESP": testserver.GarbageReply, "a reply of another shape": testserver.UnrelatedReply,
	} {
		t.Run(name+" unknown outcome", func(t *testing.T) {
			lock := claimed()
			r.proxy.Inject(testserver.Match{Script: "acquire", Arg: lock.Lease}, action)
			_, err := r.store.Acquire(t.Context(), lock)
			unknown(t, "acquire", err)
			quiet(t, err, lock)
			f := r.proxy.Inject(testserver.Match{Script: "extend", Arg: lock.Lease}, action)
			unknown(t, "extend", hit(t, f, func() error { return r.store.Extend(t.Context(), []store.Claim{lock})[0].Err }))
			r.proxy.Inject(testserver.Match{Script: "release", Arg: lock.Lease}, action)
			unknown(t, "release", r.store.Release(t.Context(), lock))
		})
	}
}

// TestErrorReplies_Connections checks that connections to a server that has lost its
// role are not reused (hazard 23).
func TestErrorReplies_Connections(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, c := range errorReplies {
		t.Run(c.reply[:min(len(c.reply), 100)], func(t *testing.T) {
			t.Run("acquire", func(t *testing.T) {
				connectionsAfter(t, server, c.reply, c.displaced, func(s *redisstore.Store, _ store.Claim) error {
					_, err := s.Acquire(t.Context(), claimed())
					return err
				})
			})
			t.Run("extend", func(t *testing.T) { // sent by pipeline.DoAll
				connectionsAfter(t, server, c.reply, c.displaced, func(s *redisstore.Store, held store.Claim) error {
					return extend(s, held)
				})
			})
		})
	}
}

// connectionsAfter holds a lock, makes a call to which each old connection answers with
// reply, and checks the client's connections.
func connectionsAfter(t *testing.T, server *testserver.Redis, reply string, displaced bool, call func(*redisstore.Store, store.Claim) error) {
	t.Helper()
	r := newRig(t, server, func(o *redis.Options) {
		// A late call closes no connection.
		o.ContextTimeoutEnabled, o.ReadTimeout = false, time.Minute
	})
	c := claimed()
	acquire(t, r.store, c)
	testclient.Idle(t, r.client, 3)
	last := 0
	for _, q := range r.proxy.Requests() {
		last = max(last, q.Link)
	}
	r.proxy.OnRequest(func(q testserver.Request) testserver.Action {
		if q.Link <= last && (q.Name == "set" || q.Script == "acquire" || q.Script == "extend") {
			return testserver.ErrorReply(reply)
		}
		return testserver.Pass
	})
	if err := call(r.store, c); err == nil && !displaced {
		t.Fatal("got no error")
	}
	if displaced {
		testserver.Eventually(t, 20*time.Second, "no old connection is left", func() bool {
			fresh := make(map[int]bool)
			for _, q := range r.proxy.Requests() {
				if q.Link > last {
					fresh[q.Link] = true
				}
			}
			return testclient.Connections(r.client) <= len(fresh)
		})
		return
	}
	testclient.Idle(t, r.client, 3)
	for _, q := range r.proxy.Requests() {
		if q.Link > last {
			t.Fatalf("got connection %d, want none of more than %d", q.Link, last)
		}
	}
}

// quiet fails the test if err contains the key, the owner or the lease.
func quiet(t testing.TB, err error, c store.Claim) {
	t.Helper()
	for _, secret := range []string{c.Key, c.Owner, c.Lease} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error %q shows %q", err, secret)
		}
	}
}
