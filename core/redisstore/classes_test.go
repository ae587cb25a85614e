package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// Error replies and what they mean (hazard 17).
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	for _, c := range []struct {
		reply   string
		refused bool
	}{
		{"READONLY You can't write against a read only replica.", true},
		{"LOADING Redis is loading the dataset in memory", true},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", true},
		{"CLUSTERDOWN The cluster is down", true},
		{"CLUSTERDOWN Hash slot not served", true},
		{"TRYAGAIN Multiple keys request during rehashing of slot", true},
		{"NOREPLICAS Not enough good replicas to write.", true},
		{"OOM command not allowed when used memory > 'maxmemory'.", true},
		{"NOAUTH Authentication required.", true},
		{"WRONGPASS invalid username-password pair or user is disabled.", true},
		{"NOPERM this user has no permissions to run the 'evalsha' command", true},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", true},
		{"BUSY Redis is busy running a script.", true},
		{"UNKILLABLE Sorry the script already executed write commands against the dataset.", true},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", true},
		{"MOVED 3999 127.0.0.1:6381", true},
		{"ASK 3999 127.0.0.1:6381", true},
		{"CROSSSLOT Keys in request don't hash to the same slot", true},
		{"ERR max number of clients reached", true},
		{"ERR unknown command 'evalsha', with args beginning with: ", true},
		{"ERR The user executing the script can't run this command or subcommand script: ab, on @user_script:1.", true},
		{"ERR Error running script (call to f_ab): @user_script:40: @user_script: 40: -OOM command not allowed", true},
		{"ERR Error running script (call to f_ab): @user_script:40: -READONLY You can't write", true},
		{"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:40.", true},

		{"ERR Error running script (call to f_ab): @user_script:40: attempt to index a nil value", false},
		{"ERR user_script:40: attempt to index a nil value script: ab, on @user_script:40.", false},
		{"ERR internal error", false},
		{"EXECABORT Transaction discarded because of previous errors.", false},
		{"SOMETHING new", false},
	} {
		t.Run(c.reply, func(t *testing.T) {
			lock := claimed()
			calls := map[string]func() error{
				"acquire": func() error { _, err := r.store.Acquire(t.Context(), lock); return err },
				"extend":  func() error { return extend(r.store, lock) },
				"release": func() error { return r.store.Release(t.Context(), lock) },
			}
			for name, call := range calls {
				f := r.proxy.Inject(redistest.Match{Script: name, Arg: lock.Lease}, redistest.ErrorReply(c.reply))
				err := call()
				f.Await(t)
				if got := errors.Is(err, core.ErrUnavailable); got != c.refused {
					t.Errorf("%s: %v matches ErrUnavailable: %v, want %v", name, err, got, c.refused)
				}
				var reply redis.Error
				if !errors.As(err, &reply) {
					t.Errorf("%s: %v does not carry the server's reply", name, err)
				}
				if n := r.proxy.Times(f); n != 1 {
					t.Errorf("%s was sent %d times", name, n)
				}
				if errors.Is(err, core.ErrBusy) || errors.Is(err, core.ErrLost) {
					t.Errorf("%s: %v is an answer", name, err)
				}
				quiet(t, err, lock)
			}
		})
	}
	t.Run("a script that stays unknown is a refusal", func(t *testing.T) {
		lock := claimed()
		f := r.proxy.Inject(redistest.Match{Script: "acquire", Arg: lock.Lease, Times: -1}, redistest.ErrorReply("NOSCRIPT No matching script."))
		_, err := r.store.Acquire(t.Context(), lock)
		wantIs(t, "acquire", err, core.ErrUnavailable)
		if n := r.proxy.Times(f); n != 2 {
			t.Errorf("sent %d times, want once by name and once by text", n)
		}
	})
	for name, action := range map[string]redistest.Action{
		"a closed connection": redistest.CloseRequest, "a closed connection after the call": redistest.CloseReply,
		"a reply that is not RESP": redistest.GarbageReply, "a reply of another shape": redistest.UnrelatedReply,
	} {
		t.Run(name+" leaves the outcome open", func(t *testing.T) {
			lock := claimed()
			r.proxy.Inject(redistest.Match{Script: "acquire", Arg: lock.Lease}, action)
			_, err := r.store.Acquire(t.Context(), lock)
			unknown(t, "acquire", err)
			quiet(t, err, lock)
			r.proxy.Inject(redistest.Match{Script: "extend", Arg: lock.Lease}, action)
			unknown(t, "extend", extend(r.store, lock))
			r.proxy.Inject(redistest.Match{Script: "release", Arg: lock.Lease}, action)
			unknown(t, "release", r.store.Release(t.Context(), lock))
		})
	}
}

// quiet fails the test if err says what the lock is or who holds it.
func quiet(t testing.TB, err error, c core.Claim) {
	t.Helper()
	for _, secret := range []string{c.Key, c.Owner, c.Lease} {
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("the error %q shows %q", err, secret)
		}
	}
}

// Calls that end before a server has them.
func TestNotSent(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, s *redisstore.Store, also error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lock := claimed()
		_, err := s.Acquire(ctx, lock)
		wantIs(t, "acquire", err, core.ErrUnavailable)
		wantIs(t, "extend", s.Extend(ctx, []core.Claim{lock})[0].Err, core.ErrUnavailable)
		wantIs(t, "release", s.Release(ctx, lock), core.ErrUnavailable)
		if also != nil {
			wantIs(t, "acquire", err, also)
		}
	}
	for way, edit := range ways {
		if edit == nil {
			edit = func(*redis.Options) {}
		}
		t.Run("no server listens, "+way, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Kill()
			refused(t, newStore(t, redistest.Client(t, server.Addr, edit, func(o *redis.Options) { o.DialerRetries = 1 })), nil)
		})
		t.Run("the server does not take the handshake, "+way, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			refused(t, newStore(t, redistest.Client(t, l.Addr().String(), edit)), context.DeadlineExceeded)
		})
		t.Run("the pool is exhausted, "+way, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redistest.Client(t, server.Addr, edit, func(o *redis.Options) {
				o.PoolSize, o.PoolTimeout, o.PipelinePoolSize = 1, 100*time.Millisecond, -1
			})
			conn := client.Conn()
			defer conn.Close()
			if err := conn.Ping(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			refused(t, newStore(t, client), redis.ErrPoolTimeout)
		})
		t.Run("the client is closed, "+way, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redistest.Client(t, server.Addr, edit)
			s := newStore(t, client)
			client.Close()
			refused(t, s, redis.ErrClosed)
		})
		t.Run("a hook stops the command, "+way, func(t *testing.T) {
			t.Parallel()
			client := redistest.Client(t, redistest.Start(t).Addr, edit)
			no := errors.New("not today")
			client.AddHook(hook{before: no})
			refused(t, newStore(t, client), no)
		})
		t.Run("a hook fails after the command, "+way, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redistest.Client(t, server.Addr, edit)
			client.AddHook(hook{after: errors.New("too late")})
			s := newStore(t, client)
			_, err := s.Acquire(t.Context(), claimed())
			unknown(t, "acquire", err)
			unknown(t, "release", s.Release(t.Context(), claimed()))
		})
		t.Run("a hook panics, "+way, func(t *testing.T) {
			t.Parallel()
			client := redistest.Client(t, redistest.Start(t).Addr, edit)
			client.AddHook(hook{panics: true})
			refused(t, newStore(t, client), nil)
		})
	}
	t.Run("a limiter stops the command", func(t *testing.T) {
		t.Parallel()
		no := errors.New("not so many")
		client := redistest.Client(t, redistest.Start(t).Addr, func(o *redis.Options) { o.Limiter = limiter{no} })
		refused(t, newStore(t, client), no)
	})
}

type hook struct {
	before, after error
	panics        bool
}

func (h hook) run(next func() error) error {
	if h.panics {
		panic("in a hook")
	}
	if h.before != nil {
		return h.before
	}
	return errors.Join(next(), h.after)
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = fmt.Sprint(cmd.String(), cmd.Args()) // as a tracing hook does
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		return h.run(func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !strings.HasPrefix(cmds[0].Name(), "eval") {
			return next(ctx, cmds)
		}
		return h.run(func() error { return next(ctx, cmds) })
	}
}

type limiter struct{ err error }

func (l limiter) Allow() error     { return l.err }
func (limiter) ReportResult(error) {}

// Servers that refuse by themselves.
func TestRefusals(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, s *redisstore.Store, code string) {
		t.Helper()
		_, err := s.Acquire(t.Context(), claimed())
		wantIs(t, "acquire", err, core.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("got %v, want %s", err, code)
		}
	}
	t.Run("READONLY: a replica", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t)
		replica := redistest.Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.Port()))
		s := newStore(t, replica.Client())
		// Until it has its first copy it answers otherwise.
		redistest.Eventually(t, 20*time.Second, "the replica is in sync", func() bool {
			return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		check(t, s, "READONLY")
	})
	t.Run("MASTERDOWN: a replica that lost its master", func(t *testing.T) {
		t.Parallel()
		gone := redistest.Start(t)
		gone.Kill()
		replica := redistest.Start(t, "--replicaof", "127.0.0.1", fmt.Sprint(gone.Port()), "--replica-serve-stale-data", "no")
		check(t, newStore(t, replica.Client()), "MASTERDOWN")
	})
	t.Run("CLUSTERDOWN: a cluster without slots", func(t *testing.T) {
		t.Parallel()
		node := redistest.Start(t, "--cluster-enabled", "yes")
		check(t, newStore(t, node.Client()), "CLUSTERDOWN")
	})
	t.Run("NOREPLICAS: too few replicas", func(t *testing.T) {
		t.Parallel()
		check(t, newStore(t, redistest.Start(t, "--min-replicas-to-write", "1").Client()), "NOREPLICAS")
	})
	t.Run("NOAUTH: a password is needed", func(t *testing.T) {
		t.Parallel()
		// A command of many words does not get as far as NOAUTH.
		check(t, newStore(t, redistest.Start(t, "--requirepass", "secret").Client()), "unauthenticated")
	})
	t.Run("MISCONF: the server cannot save", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--save", "3600 1", "--dbfilename", "dump")
		s := newStore(t, server.Client())
		acquire(t, s, claimed())
		breakSaving(t, server)
		check(t, s, "MISCONF")
	})
	t.Run("BUSY: a script that runs on", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--busy-reply-threshold", "50")
		s := newStore(t, server.Client())
		busy := server.Client()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = busy.Eval(context.Background(), "while true do end", nil).Err()
		}()
		asks := redistest.Client(t, server.Addr)
		redistest.Eventually(t, 20*time.Second, "the server is busy", func() bool {
			return redis.HasErrorPrefix(asks.Ping(context.Background()).Err(), "BUSY")
		})
		check(t, s, "BUSY")
		if err := asks.ScriptKill(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		<-done
	})
	t.Run("WRONGTYPE: the key is something else", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		client := server.Client()
		c := claimed()
		if err := client.Set(t.Context(), stored(c), "mine", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, client)
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, core.ErrUnavailable)
		wantIs(t, "extend", extend(s, c), core.ErrUnavailable)
		wantIs(t, "release", s.Release(t.Context(), c), core.ErrUnavailable)
		if v := client.Get(t.Context(), stored(c)).Val(); v != "mine" {
			t.Errorf("the value is %q", v)
		}
	})
	t.Run("a server that dies in the middle of a call leaves the outcome open", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		s := newStore(t, server.Client())
		acquire(t, s, claimed())
		server.Pause()
		done := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background(), claimed())
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("a paused server answered: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		server.Kill()
		unknown(t, "acquire", <-done)
	})
}

// breakSaving makes the server fail to save, so that it refuses writes.
func breakSaving(t *testing.T, server *redistest.Server) {
	t.Helper()
	// What it would write to is a directory.
	if err := os.MkdirAll(filepath.Join(server.Dir, "dump", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	asks := server.Client()
	_ = asks.BgSave(t.Context()).Err()
	redistest.Eventually(t, 20*time.Second, "saving has failed", func() bool {
		return strings.Contains(asks.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
}
