package cron_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/examples/recipes/cron"
)

// replicaOf names an environment variable. If the variable has the server's address,
// the test's program becomes a replica that hangs in its job.
const replicaOf = "CRON_REPLICA"

var due = time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	addr := os.Getenv(replicaOf)
	if addr == "" {
		os.Exit(m.Run())
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	runs, err := replica(client)
	if err == nil {
		err = cron.Run(context.Background(), runs, "report", due, func(ctx context.Context) error {
			if err := client.Incr(ctx, "started").Err(); err != nil {
				return err
			}
			select {}
		})
	}
	panic(err)
}

func replica(client *redis.Client) (*once.Once, error) {
	store, err := redisstore.New(client)
	if err != nil {
		return nil, err
	}
	locks, err := core.New(store)
	if err != nil {
		return nil, err
	}
	return once.New(locks, once.Acquire(core.TTL(2*time.Second)))
}

// TestUntil_RunnerDies kills a replica during its job. Another replica, which has found
// the job in progress, then runs the job.
func TestUntil_RunnerDies(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), replicaOf+"="+server.Addr)
	child := testserver.StartProcess(t, cmd)
	testserver.Eventually(t, time.Minute, "the job has started", func() bool {
		return client.Get(t.Context(), "started").Val() == "1"
	})
	runs, err := replica(client)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan int, 10)
	job := func(ctx context.Context) error {
		attempt, _ := once.AttemptFromContext(ctx)
		ran <- attempt
		return nil
	}
	if err := cron.Run(t.Context(), runs, "report", due, job); !errors.Is(err, once.ErrInProgress) {
		t.Errorf("beside the runner: got %v, want ErrInProgress: nobody has done the job", err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { done <- cron.Until(ctx, runs, "report", due, 100*time.Millisecond, job) }()
	select {
	case err := <-done:
		t.Fatalf("returned %v while the runner lives", err)
	case <-time.After(500 * time.Millisecond):
	}
	child.Kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := cron.Run(t.Context(), runs, "report", due, job); err != nil {
		t.Errorf("once more: %v", err)
	}
	for _, key := range client.Keys(t.Context(), "*").Val() {
		if left := client.PTTL(t.Context(), key).Val(); key != "started" && left < cron.Keep-time.Hour {
			t.Errorf("the run is known for %v, want %v", left, cron.Keep)
		}
	}
	if len(ran) != 1 || <-ran != 2 {
		t.Errorf("the job did not run once as attempt 2")
	}
}

var errNextIsDue = errors.New("the next run is due")

// TestUntil_NextIsDue checks that Until stops when the next run is due, if the job
// fails each time.
func TestUntil_NextIsDue(t *testing.T) {
	t.Parallel()
	runs, err := replica(testclient.Redis(t, testserver.StartRedis(t).Addr))
	if err != nil {
		t.Fatal(err)
	}
	full, tries := errors.New("the disk is full"), 0
	ctx, cancel := context.WithCancelCause(t.Context())
	err = cron.Until(ctx, runs, "report", due, time.Millisecond, func(context.Context) error {
		if tries++; tries == 3 {
			cancel(errNextIsDue)
		}
		return full
	})
	if !errors.Is(err, full) || !errors.Is(err, errNextIsDue) || tries != 3 {
		t.Errorf("got %v after %d tries, want both reasons after 3", err, tries)
	}
	unknown := func(context.Context) error { return once.ErrIndeterminate }
	if err := cron.Until(t.Context(), runs, "unknown", due, time.Hour, unknown); !errors.Is(err, once.ErrIndeterminate) {
		t.Errorf("got %v, want ErrIndeterminate at once", err)
	}
}
