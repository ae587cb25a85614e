//go:build unix

package main_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lockkit/lockkit/core"
	program "github.com/lockkit/lockkit/core/cmd/lockkit"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// runWorker starts the program with a worker as its command, and waits until the worker
// works.
func runWorker(t testing.TB, store, file string, args ...string) *testserver.Process {
	t.Helper()
	p := startWorker(t, store, file, args...)
	awaitBegin(t, file)
	return p
}

// startWorker starts the program with a worker without waiting. args are the flags and
// the key, and after "--" the arguments of the worker.
func startWorker(t testing.TB, store, file string, args ...string) *testserver.Process {
	t.Helper()
	all, worker := []string{"run"}, []string{}
	for i, a := range args {
		if a == "--" {
			worker = args[i+1:]
			break
		}
		all = append(all, a)
	}
	all = append(append(all, "--", self(t), "worker", file), worker...)
	return testserver.StartProcess(t, lockkit(t, store, all...))
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), "signs") }

func TestRun(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	on := map[string]func(t *testing.T) string{
		"Redis": func(*testing.T) string { return redisURL(server.Addr) },
		"PostgreSQL": func(t *testing.T) string {
			url := postgres.Get(t).NewDatabase(t).URL()
			if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, url)); err != nil {
				t.Fatal(err)
			}
			return url
		},
		"MariaDB": func(t *testing.T) string { _, url := onMariaDB(t); return url },
		"SQLite":  func(t *testing.T) string { _, url := onSQLite(t); return url },
	}
	for name, store := range on {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := store(t)
			t.Run("exit code of the command", func(t *testing.T) {
				served(t, store, "run", "code:1", "--", "sh", "-c", "exit 7").want(t, 7, "")
				served(t, store, "run", "code:1", "--", "sh", "-c", "kill -9 $$").want(t, 137, "")
				served(t, store, "run", "code:1", "--", "true").want(t, 0, "")
			})
			t.Run("two at once exclude each other", func(t *testing.T) {
				first, second, third := file(t), file(t), file(t)
				p := runWorker(t, store, first, "two:1")
				c := served(t, store, "run", "two:1", "--", self(t), "worker", second)
				c.want(t, 75, "lockkit: acquire \"two\": lock is busy")
				if sign(second, signBegin) != 0 {
					t.Error("the second command ran")
				}
				startWorker(t, store, third, "-wait", "1m", "two:1")
				_ = syscall.Kill(p.Pid(), syscall.SIGTERM)
				p.Wait(patience)
				awaitBegin(t, third)
				if last, begin := sign(first, signAlive), sign(third, signBegin); begin <= last {
					t.Errorf("the next command began %d ns before the last sign of the first", last-begin)
				}
			})
			t.Run("the token grows", func(t *testing.T) {
				var last uint64
				for range 3 {
					c := served(t, store, "run", "token:1", "--", "sh", "-c", "echo $LOCKKIT_TOKEN")
					token, err := strconv.ParseUint(strings.TrimSpace(c.out), 10, 64)
					if err != nil || token <= last {
						t.Fatalf("token %q after %d: %v, %q", c.out, last, err, c.errs)
					}
					last = token
				}
			})
			t.Run("kept key stays busy", func(t *testing.T) {
				served(t, store, "run", "-keep", "1m", "keep:1", "--", "true").want(t, 0, "")
				served(t, store, "run", "-keep", "1m", "keep:1", "--", "true").want(t, 75, "busy")
			})
			t.Run("kept key without a run", func(t *testing.T) {
				script := file(t)
				if err := os.WriteFile(script, []byte("#!/nowhere/sh\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				served(t, store, "run", "-keep", "1m", "unkept:1", "--", script).want(t, 127, "no such file")
				served(t, store, "run", "-keep", "1m", "unkept:1", "--", "true").want(t, 0, "")
			})
			t.Run("permits", func(t *testing.T) {
				for range 2 {
					runWorker(t, store, file(t), "-permits", "1/2", "permits:1")
				}
				served(t, store, "run", "-permits", "1/2", "permits:1", "--", "true").want(t, 75, "busy")
			})
			t.Run("shared", func(t *testing.T) {
				runWorker(t, store, file(t), "-shared", "shared:1")
				cmd := lockkit(t, store, "run", "-shared", "shared:1", "--", "sh", "-c", "echo ${LOCKKIT_TOKEN-none}")
				cmd.Env = append(cmd.Env, "LOCKKIT_TOKEN=1")
				if c := end(t, cmd); c.out != "none\n" {
					t.Errorf("%+v", c)
				}
				served(t, store, "run", "shared:1", "--", "true").want(t, 75, "busy")
			})
			t.Run("join", func(t *testing.T) {
				inner := func(flag string) string {
					return `"$0" run ` + flag + ` join:1 -- sh -c 'echo $LOCKKIT_TOKEN'`
				}
				c := served(t, store, "run", "-join", "join:1", "--", "sh", "-c", "echo $LOCKKIT_TOKEN; "+inner("-join"), self(t))
				c.want(t, 0, "")
				if lines := strings.Fields(c.out); len(lines) != 2 || lines[0] != lines[1] {
					t.Errorf("tokens %q", c.out)
				}
				served(t, store, "run", "-join", "join:1", "--", "sh", "-c", inner(""), self(t)).want(t, 75, "busy")
				served(t, store, "run", "join:1", "--", "sh", "-c", inner("-join"), self(t)).want(t, 75, "busy")
			})
		})
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(s.String()+" is passed on", func(t *testing.T) {
			t.Parallel()
			store, f, key := redisURL(server.Addr), file(t), "signal:"+strconv.Itoa(int(s))
			p := runWorker(t, store, f, key)
			_ = syscall.Kill(p.Pid(), s)
			p.Wait(patience)
			if sign(f, signTerm) == 0 {
				t.Error("the command got no signal")
			}
			do(t, store, "run", key, "--", "true").want(t, 0, "")
		})
	}
	t.Run("SIGTSTP is ignored", func(t *testing.T) {
		t.Parallel()
		store, f := redisURL(server.Addr), file(t)
		p := runWorker(t, store, f, "stop:1")
		_ = syscall.Kill(p.Pid(), syscall.SIGTSTP)
		_ = syscall.Kill(p.Pid(), syscall.SIGTERM)
		p.Wait(patience)
	})
	t.Run("signal while waiting", func(t *testing.T) {
		t.Parallel()
		store, f := redisURL(server.Addr), file(t)
		holder := runWorker(t, store, f, "wait:1")
		waiter := lockkit(t, store, "run", "-wait", "10m", "wait:1", "--", "true")
		if err := waiter.Start(); err != nil {
			t.Fatal(err)
		}
		testserver.Eventually(t, patience, "it waits", func() bool {
			return strings.Contains(server.Do("CLIENT", "LIST", "TYPE", "PUBSUB").(string), "cmd=subscribe")
		})
		_ = waiter.Process.Signal(syscall.SIGTERM)
		_ = waiter.Wait()
		if code := waiter.ProcessState.ExitCode(); code != 128+15 {
			t.Errorf("exit code %d", code)
		}
		_ = syscall.Kill(holder.Pid(), syscall.SIGTERM)
		holder.Wait(patience)
		do(t, store, "run", "wait:1", "--", "true").want(t, 0, "")
	})
}

// TestRun_PassedOn checks that a lock that its holder passes on, for a short time at
// first, has room for a long grace.
func TestRun_PassedOn(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	store, f := redisURL(server.Addr), file(t)
	holder := runWorker(t, store, f, "-ttl", "30s", "passed:1")
	waiter := lockkit(t, store, "run", "-ttl", "30s", "-wait", "10m", "-grace", "10s", "passed:1", "--", "true")
	var errs bytes.Buffer
	waiter.Stderr = &errs
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	testserver.Eventually(t, patience, "it waits in the queue", func() bool {
		return strings.Contains(do(t, store, "show", "passed:1").out, "waits")
	})
	_ = syscall.Kill(holder.Pid(), syscall.SIGTERM)
	if err := waiter.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// TestStartJob_LostLock checks that a command is not started if the lock was lost after
// its grant, for example while this process was paused.
func TestStartJob_LostLock(t *testing.T) {
	t.Parallel()
	f := file(t)
	if err := program.StartLost("/bin/sh", []string{"sh", "-c", `: >"$0"`, f}); !errors.Is(err, core.ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
	if _, err := os.Stat(f); err == nil {
		t.Error("the command ran")
	}
}

func TestCodes(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	store := redisURL(server.Addr)
	plain := file(t)
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		store string
		args  []string
		code  int
		text  string
	}{
		{"no command", store, nil, 64, "lockkit run"},
		{"an unknown command", store, []string{"ruin"}, 64, `unknown command "ruin"`},
		{"no key", store, []string{"run", "--", "true"}, 64, "KEY -- COMMAND"},
		{"no dashes", store, []string{"run", "k:1", "true", "x"}, 64, "KEY -- COMMAND"},
		{"nothing to run", store, []string{"run", "k:1", "--"}, 64, "KEY -- COMMAND"},
		{"an empty key", store, []string{"run", "", "--", "true"}, 64, "invalid"},
		{"an unknown flag", store, []string{"run", "-fast", "k:1", "--", "true"}, 64, "-fast"},
		{"a ttl that is too short", store, []string{"run", "-ttl", "1ms", "k:1", "--", "true"}, 64, "TTL"},
		{"grace without time to extend", store, []string{"run", "-ttl", "10s", "-grace", "5s", "k:1", "--", "true"}, 64, "4 s"},
		{"permits that are none", store, []string{"run", "-permits", "3", "k:1", "--", "true"}, 64, "1/3"},
		{"permits beyond their number", store, []string{"run", "-permits", "4/3", "k:1", "--", "true"}, 64, "Permits"},
		{"a negative wait", store, []string{"run", "-wait", "-1s", "k:1", "--", "true"}, 64, "Wait"},
		{"what the store does not serve", store, []string{"run", "-plain", "-shared", "k:1", "--", "true"}, 64, "not supported"},
		{"no store", "", []string{"run", "k:1", "--", "true"}, 64, "LOCKKIT_STORE"},
		{"a store of no kind", "etcd://host", []string{"run", "k:1", "--", "true"}, 64, "unknown scheme (redis,"},
		{"a store that is no URL", "host:6379", []string{"run", "k:1", "--", "true"}, 64, "not a URL"},
		{"a store that is down", "redis://127.0.0.1:1", []string{"run", "k:1", "--", "true"}, 69, "unavailable"},
		{"PostgreSQL that is down", "postgres://127.0.0.1:1/x", []string{"run", "k:1", "--", "true"}, 69, "unavailable"},
		{"MariaDB that is down", "mariadb://127.0.0.1:1/x", []string{"run", "k:1", "--", "true"}, 69, "unavailable"},
		{"MySQL without a database", "mysql://root@127.0.0.1:1", []string{"check"}, 64, "mysql://user:password@host:3306/database"},
		{"a parameter of no driver", "mysql://127.0.0.1:1/x?parseTime=perhaps", []string{"check"}, 64, "perhaps"},
		{"a file that is not there", "sqlite:///nowhere/locks.db", []string{"check"}, 64, "no such file"},
		{"a folder", "sqlite:///", []string{"check"}, 64, "not a file"},
		{"a database in memory", "sqlite://:memory:", []string{"check"}, 64, "in memory"},
		{"a file that is no database", "sqlite://" + plain, []string{"run", "k:1", "--", "true"}, 69, "not a database"},
		{"a command that is not there", store, []string{"run", "k:1", "--", "no-such-command"}, 127, "no-such-command"},
		{"a command that cannot be run", store, []string{"run", "k:1", "--", plain}, 126, "permission denied"},
		{"arguments of check", store, []string{"check", "k:1"}, 64, "no arguments"},
		{"Sentinel without a master", "redis+sentinel://127.0.0.1:1", []string{"check"}, 64, "master_name"},
		{"another scheme of Redis", "redis+other://127.0.0.1:1", []string{"check"}, 64, "redis+cluster"},
		{"a prefix for ZooKeeper", "zk://127.0.0.1:1", []string{"check", "-prefix", "x"}, 64, "for Redis"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do(t, c.store, c.args...).want(t, c.code, c.text)
		})
	}
	t.Run("help", func(t *testing.T) {
		t.Parallel()
		c := do(t, "", "run", "-h")
		c.want(t, 0, "")
		for _, text := range []string{"75 ", "69 ", "70 ", "64 ", " 126  ", " 127  ", "list of processes", "-grace", "setsid"} {
			if !strings.Contains(c.out, text) {
				t.Errorf("%q is missing in the help:\n%s", text, c.out)
			}
		}
	})
	t.Run("no password is shown", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"redis://user:sesame@127.0.0.1:1/x", "redis://:sesame@127.0.0.1:x", "redis://user:1234/sesame@h/0",
			"redis://user:ses ame@h%zz", "redis://user:sesame@127.0.0.1:1?pool=1", "rediss+cluster://u:sesame@127.0.0.1:1",
			"redis+sentinel://h:1?password=sesame&master_name=m&db=x", "postgres://u:sesame@127.0.0.1:1/x",
			"mysql://u:sesame@127.0.0.1:1/x", "mysql://u:sesame@127.0.0.1:1", "mysql://u:ses@me@h:x/x", "mysql://u:sesame@127.0.0.1:1/x?tls=sesame",
			"postgres://u:sesame@h:x/x", "postgres://u:x@h/x?sslpassword=sesame&sslmode=none", "zk://u:sesame@/x",
			"sesame@host", "x://u:sesame@host", "redis:sesame",
		} {
			c := do(t, url, "run", "k:1", "--", "true")
			if c.code != 64 && c.code != 69 || strings.Contains(c.out+c.errs, "same") {
				t.Errorf("%s: exit code %d, %q", url, c.code, c.errs)
			}
		}
	})
	t.Run("store flag beats the environment", func(t *testing.T) {
		t.Parallel()
		do(t, "redis://127.0.0.1:1", "run", "-store", store, "store:1", "--", "true").want(t, 0, "")
	})
	t.Run("flags of keys", func(t *testing.T) {
		t.Parallel()
		f := file(t)
		runWorker(t, store, f, "-prefix", "mine:", "-plain", "plain:1")
		if owner, _ := server.Do("GET", "mine:plain:1").(string); owner == "" {
			t.Error("there is no such key")
		}
	})
}

func TestBuilt(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Run("go build", func(t *testing.T) {
		t.Parallel()
		store, f, path := redisURL(server.Addr), file(t), filepath.Join(t.TempDir(), "lockkit")
		if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := lockkit(t, store, "run", "-ttl", "2s", "built:1", "--", self(t), "worker", f)
		cmd.Path, cmd.Args[0] = path, path
		p := testserver.StartProcess(t, cmd)
		awaitBegin(t, f)
		do(t, store, "run", "built:1", "--", "true").want(t, 75, "busy")
		_ = syscall.Kill(p.Pid(), syscall.SIGKILL)
		awaitEnd(t, f)
		next := file(t)
		runWorker(t, store, next, "-wait", "1m", "built:1")
		if last, begin := sign(f, signAlive), sign(next, signBegin); begin <= last {
			t.Errorf("the next command began %d ns before the last sign of the first", last-begin)
		}
	})
}

func TestReadme(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Run("its examples run", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile("README.md")
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "```sh\n")
		if len(blocks) != 4 {
			t.Fatalf("%d blocks", len(blocks)-1)
		}
		script, _, _ := strings.Cut(blocks[2], "```")
		forOperators, _, _ := strings.Cut(blocks[3], "```")
		dir := t.TempDir()
		if err := os.Symlink(self(t), filepath.Join(dir, "lockkit")); err != nil {
			t.Fatal(err)
		}
		sh := func(script, input string) call {
			cmd := lockkit(t, redisURL(server.Addr))
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-ec", script}
			cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
			cmd.Stdin = strings.NewReader(input)
			c := end(t, cmd)
			if n := strings.Count(c.out, "\n"); n < strings.Count(script, "\n") {
				t.Errorf("%q", c.out)
			}
			return c
		}
		sh(script, "").want(t, 0, "")
		locks := service(t, onRedis(t, server.Addr))
		a, b := acquire(t, locks, "order:42"), acquire(t, locks, "order:43")
		ids := strings.NewReplacer("6CkD3Vx0aZs", a.ID(), "pQ0r1bT8uWw", b.ID())
		c := sh(ids.Replace(forOperators), b.ID()+"\n")
		c.want(t, 0, "Another process can acquire the key")
		if n := strings.Count(c.out, a.ID()); n != 2 { // in ls -all and in show
			t.Errorf("%q", c.out)
		}
		if _, err := service(t, onRedis(t, server.Addr)).TryAcquire(t.Context(), "order:43"); err != nil {
			t.Error(err)
		}
	})
}
