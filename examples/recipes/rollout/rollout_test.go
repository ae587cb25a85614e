package rollout_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/examples/recipes/rollout"
)

// replicaOf names an environment variable. If the variable has a release and the
// server's address, the test's program becomes a replica of that release.
const replicaOf = "ROLLOUT_REPLICA"

func TestMain(m *testing.M) {
	if release, addr, ok := strings.Cut(os.Getenv(replicaOf), " "); ok {
		if err := serve(release, addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs a replica. For each line that it reads, it tries to acquire the lock and
// prints the outcome. If the replica has the lock, it releases the lock at the next
// line.
func serve(release, addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	old, err := rollout.OldKeys(client)
	if err != nil {
		return err
	}
	usual, err := redisstore.New(client)
	if err != nil {
		return err
	}
	oldLocks, err := core.New(old, core.WithDefaults(core.Wait(0)))
	if err != nil {
		return err
	}
	locks, err := core.New(usual, core.WithDefaults(core.Wait(0)))
	if err != nil {
		return err
	}
	lock := map[string]rollout.Lock{
		"0": rollout.Old(client), "1": rollout.New(oldLocks), "2": rollout.Both(oldLocks, locks), "3": rollout.New(locks),
	}[release]
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		err := lock(context.Background(), "order:42", func(context.Context) error {
			fmt.Println("inside")
			lines.Scan()
			return nil
		})
		switch {
		case err == nil:
			fmt.Println("left")
		case errors.Is(err, core.ErrBusy), errors.Is(err, rollout.ErrTaken):
			fmt.Println("busy")
		default:
			return err
		}
	}
	return nil
}

type replica struct {
	t       *testing.T
	in      io.WriteCloser
	answers *bufio.Reader
}

func start(t *testing.T, release, addr string) *replica {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), replicaOf+"="+release+" "+addr), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &replica{t, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		r.stop()
		_ = cmd.Wait()
	})
	return r
}

func (r *replica) stop() { _ = r.in.Close() }

// next fails the test unless the replica prints want after its next step.
func (r *replica) next(want string) {
	r.t.Helper()
	if _, err := fmt.Fprintln(r.in); err != nil {
		r.t.Fatal(err)
	}
	line, err := r.answers.ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	if got := strings.TrimSpace(line); got != want {
		r.t.Errorf("got %s, want %s", got, want)
	}
}

// exclude checks that neither of two replicas gets the lock while the other holds it.
func exclude(a, b *replica) {
	a.t.Helper()
	for range 2 {
		a.next("inside")
		b.next("busy")
		a.next("left")
		a, b = b, a
	}
}

// TestRollout replaces the older of two replicas again and again, first by later
// releases and then by earlier releases.
func TestRollout(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	older, newer := start(t, "0", server.Addr()), start(t, "0", server.Addr())
	exclude(older, newer)
	for _, release := range []string{"1", "1", "2", "2", "3", "3", "2", "2", "1", "1", "0", "0"} {
		older.stop()
		older, newer = newer, start(t, release, server.Addr())
		exclude(older, newer)
	}
}

// TestRollout_StepLeftOut shows that releases 1 and 3 do not exclude each other without
// release 2 between them.
func TestRollout_StepLeftOut(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	first, third := start(t, "1", server.Addr()), start(t, "3", server.Addr())
	first.next("inside")
	third.next("inside")
}
