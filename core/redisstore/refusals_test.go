package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRefusals puts real servers into states in which they refuse calls.
func TestRefusals(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, s *redisstore.Store, code string) {
		t.Helper()
		_, err := s.Acquire(t.Context(), claimed())
		wantIs(t, "acquire", err, store.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("got %v, want %s", err, code)
		}
	}
	t.Run("READONLY of a replica", func(t *testing.T) {
		t.Parallel()
		master := testserver.StartRedis(t)
		replica := testserver.StartRedis(t, "--replicaof", "127.0.0.1", fmt.Sprint(master.Port()))
		s := newStore(t, testclient.Redis(t, replica.Addr))
		// Before its first synchronization the replica answers with another error.
		testserver.Eventually(t, 20*time.Second, "the replica is in sync", func() bool {
			return strings.Contains(testclient.Redis(t, replica.Addr).Info(t.Context(), "replication").Val(), "master_link_status:up")
		})
		check(t, s, "READONLY")
		check(t, s, "ReplicaOnly")
	})
	t.Run("MASTERDOWN of a cut off replica", func(t *testing.T) {
		t.Parallel()
		gone := testserver.StartRedis(t)
		gone.Kill()
		replica := testserver.StartRedis(t, "--replicaof", "127.0.0.1", fmt.Sprint(gone.Port()), "--replica-serve-stale-data", "no")
		check(t, newStore(t, testclient.Redis(t, replica.Addr)), "MASTERDOWN")
	})
	t.Run("CLUSTERDOWN of missing slots", func(t *testing.T) {
		t.Parallel()
		node := testserver.StartRedis(t, "--cluster-enabled", "yes")
		check(t, newStore(t, testclient.Redis(t, node.Addr)), "CLUSTERDOWN")
	})
	t.Run("NOREPLICAS of too few replicas", func(t *testing.T) {
		t.Parallel()
		check(t, newStore(t, testclient.Redis(t, testserver.StartRedis(t, "--min-replicas-to-write", "1").Addr)), "NOREPLICAS")
	})
	t.Run("NOAUTH without a password", func(t *testing.T) {
		t.Parallel()
		check(t, newStore(t, testclient.Redis(t, testserver.StartRedis(t, "--requirepass", "secret").Addr)), "NOAUTH")
	})
	for text, edit := range map[string]func(*redis.Options){
		"WRONGPASS":                func(o *redis.Options) { o.Password = "guessed" },
		"DB index is out of range": func(o *redis.Options) { o.Password, o.DB = "secret", 99 },
	} {
		t.Run(text+" from connecting", func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t, "--requirepass", "secret")
			check(t, newStore(t, testclient.Redis(t, server.Addr, edit)), text)
		})
	}
	t.Run("a server with too many clients", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		last := testclient.Redis(t, server.Addr)
		if err := last.ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, testclient.Redis(t, server.Addr))
		testserver.Eventually(t, 20*time.Second, "the error has the server's reason", func() bool {
			_, err := s.Acquire(t.Context(), claimed())
			return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "max number of clients reached")
		})
	})
	t.Run("MISCONF of a failed save", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--save", "3600", "1", "--dbfilename", "dump")
		s := newStore(t, testclient.Redis(t, server.Addr))
		acquire(t, s, claimed())
		breakSaving(t, server)
		check(t, s, "MISCONF")
	})
	t.Run("BUSY of a running script", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--lua-time-limit", "50")
		s := newStore(t, testclient.Redis(t, server.Addr))
		busy := testclient.Redis(t, server.Addr)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = busy.Eval(context.Background(), "while true do end", nil).Err()
		}()
		asks := testclient.Redis(t, server.Addr)
		testserver.Eventually(t, 20*time.Second, "the server is busy", func() bool {
			return redis.HasErrorPrefix(asks.Ping(context.Background()).Err(), "BUSY")
		})
		check(t, s, "BUSY")
		if err := asks.ScriptKill(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		<-done
	})
	t.Run("WRONGTYPE of a foreign key", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		client := testclient.Redis(t, server.Addr)
		c := claimed()
		if err := client.Set(t.Context(), stored(c), "mine", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		s := newStore(t, client)
		_, err := s.Acquire(t.Context(), c)
		wantIs(t, "acquire", err, store.ErrUnavailable)
		wantIs(t, "extend", extend(s, c), store.ErrUnavailable)
		wantIs(t, "release", s.Release(t.Context(), c), store.ErrUnavailable)
		if v := client.Get(t.Context(), stored(c)).Val(); v != "mine" {
			t.Errorf("the value is %q", v)
		}
		hash, list := claimed(), claimed()
		client.HSet(t.Context(), stored(hash), "mine", "yes")
		client.RPush(t.Context(), stored(list), "mine")
		for _, c := range []store.Claim{hash, list} {
			for _, weight := range []int64{1, store.All} {
				c.Weight = weight
				for range 2 { // by a SET, then by a script
					_, err := s.Acquire(t.Context(), c)
					wantIs(t, "acquire", err, store.ErrUnavailable)
				}
				wantIs(t, "extend", extend(s, c), store.ErrUnavailable)
				wantIs(t, "release", s.Release(t.Context(), c), store.ErrUnavailable)
				_, err := s.Look(t.Context(), c.Key)
				wantIs(t, "look", err, store.ErrUnavailable)
			}
		}
		if got := client.HGetAll(t.Context(), stored(hash)).Val(); len(got) != 1 {
			t.Errorf("the hash is %v", got)
		}
	})
	t.Run("WRONGTYPE with documented rights", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		rights := []string{"~lk2:*", "resetchannels", "&lk2:wake:*"}
		for right := range strings.FieldsSeq(usualRights) {
			rights = append(rights, "+"+right)
		}
		asks := testclient.Redis(t, server.Addr)
		text, hash, list := claimed(), claimed(), claimed()
		asks.Set(t.Context(), stored(text), "mine", 0)
		asks.HSet(t.Context(), stored(hash), "mine", "yes")
		asks.RPush(t.Context(), stored(list), "mine")
		s := newStore(t, testclient.Redis(t, server.Addr, login(t, server, "locks", rights...)))
		for _, c := range []store.Claim{text, hash, list} {
			_, err := s.Acquire(t.Context(), c)
			for op, err := range map[string]error{"acquire": err, "extend": extend(s, c), "release": s.Release(t.Context(), c)} {
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "WithPrefix") {
					t.Errorf("%s: got %v, want advice", op, err)
				}
			}
		}
		if got := asks.HGetAll(t.Context(), stored(hash)).Val(); len(got) != 1 || got["mine"] != "yes" {
			t.Errorf("the hash is %v", got)
		}
	})
	t.Run("server dies during a call", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s := newStore(t, testclient.Redis(t, server.Addr))
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

// TestRefusals_NameMoves moves the address of a server to another server after a
// failover. The former server still answers (hazard 23).
func TestRefusals_NameMoves(t *testing.T) {
	t.Parallel()
	for name, commands := range map[string][][]any{
		"a replica":                  {{"REPLICAOF", "127.0.0.1", 1}},
		"replica without its master": {{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", 1}},
		"master without replicas":    {{"CONFIG", "SET", "min-replicas-to-write", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			former := testserver.StartRedis(t)
			r := newRig(t, former, nil)
			c := claimed()
			acquire(t, r.store, c) // on the pool for pipelines
			release(t, r.store, c) // on the other pool
			for _, command := range commands {
				former.Do(command...)
			}
			r.proxy.Retarget(testserver.StartRedis(t).Addr)
			testserver.Eventually(t, 20*time.Second, "a lock is granted", func() bool {
				_, err := r.store.Acquire(t.Context(), claimed())
				if err != nil {
					wantIs(t, "acquire", err, store.ErrUnavailable)
				}
				return err == nil
			})
		})
	}
}

// TestRefusals_InScriptOf62 checks the class of Redis 6.2's replies for a refused
// command in a script.
func TestRefusals_InScriptOf62(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	const running = "ERR Error running script (call to f_2c7ff4d4): "
	for name, c := range map[string]struct {
		text    string
		unknown bool
	}{
		"missing right":          {text: running + "@user_script:152: @user_script: 152: The user executing the script can't run this command or subcommand"},
		"missing right returned": {text: "@user_script: 140: The user executing the script can't run this command or subcommand"},
		"wrong type":             {text: running + "@user_script:9: WRONGTYPE Operation against a key holding the wrong kind of value"},
		"out of memory":          {text: running + "@user_script:152: -OOM command not allowed when used memory > 'maxmemory'."},
		"no replicas":            {text: running + "@user_script:152: @user_script: 152: -NOREPLICAS Not enough good replicas to write."},
		"fault of the script":    {text: running + "@user_script:152: user_script:152: attempt to compare nil with number", unknown: true},
		"code in the text":       {text: running + "@user_script:152: ERR no WRONGTYPE here", unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := testclient.Redis(t, server.Addr)
			client.AddHook(hook{after: replied(c.text)})
			err := newStore(t, client).Release(t.Context(), claimed())
			if errors.Is(err, store.ErrUnavailable) == c.unknown {
				t.Errorf("got %v, want an unknown outcome: %v", err, c.unknown)
			}
		})
	}
}

type replied string

func (r replied) Error() string { return string(r) }

func (replied) RedisError() {}

// breakSaving makes the server fail to save, so that it refuses writes.
func breakSaving(t *testing.T, server *testserver.Redis) {
	t.Helper()
	// The path to which the server would write is a directory.
	if err := os.MkdirAll(filepath.Join(server.Dir, "dump", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	asks := testclient.Redis(t, server.Addr)
	testserver.Eventually(t, 20*time.Second, "saving has failed", func() bool {
		_ = asks.BgSave(t.Context()).Err()
		return strings.Contains(asks.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
}
