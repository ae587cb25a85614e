package saga_test

import (
	"context"
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
	"github.com/lockkit/lockkit/examples/recipes/saga"
)

// sagaOf names an environment variable. If the variable has the server's address, the
// test's program becomes a process that runs a saga and is killed in a step.
const sagaOf = "SAGA_PROCESS"

func TestMain(m *testing.M) {
	addr := os.Getenv(sagaOf)
	if addr == "" {
		os.Exit(m.Run())
	}
	panic(runSaga(redis.NewClient(&redis.Options{Addr: addr}), func() { select {} }))
}

// runSaga runs a saga with the steps reserve, charge and ship. Counters in Redis stand
// for the services. The charge has an idempotency key, as README.md advises. The charge
// calls die after its effect, before package once records it.
func runSaga(client *redis.Client, die func()) error {
	store, err := redisstore.New(client)
	if err != nil {
		return err
	}
	locks, err := core.New(store)
	if err != nil {
		return err
	}
	defer func() { _ = locks.Close(context.Background()) }()
	runs, err := once.New(locks, once.Acquire(core.TTL(2*time.Second), core.Wait(time.Minute)))
	if err != nil {
		return err
	}
	count := func(name string) func(context.Context) error {
		return func(ctx context.Context) error { return client.Incr(ctx, name).Err() }
	}
	charge := func(ctx context.Context) error {
		attempt, _ := once.AttemptFromContext(ctx)
		if isNew, err := client.SetNX(ctx, "charge of order-42", attempt, 0).Result(); err != nil {
			return err
		} else if isNew {
			client.Incr(ctx, "charged")
		}
		client.Incr(ctx, "charges asked for")
		die()
		return nil
	}
	return saga.Run(context.Background(), runs, "parcel", "order-42", []saga.Step{
		{Name: "reserve", Do: count("reserved")}, {Name: "charge", Do: charge}, {Name: "ship", Do: count("shipped")},
	})
}

// TestRun_ProcessKilled kills a process between the effect of a step and its record.
// Another process then completes the saga.
func TestRun_ProcessKilled(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sagaOf+"="+server.Addr)
	child := testserver.StartProcess(t, cmd)
	testserver.Eventually(t, time.Minute, "the charge is made", func() bool {
		return client.Get(t.Context(), "charges asked for").Val() == "1"
	})
	child.Kill()
	if err := runSaga(client, func() {}); err != nil {
		t.Fatal(err)
	}
	if err := runSaga(client, func() {}); err != nil { // the second run does nothing
		t.Fatal(err)
	}
	for name, want := range map[string]string{"reserved": "1", "charged": "1", "charges asked for": "2", "shipped": "1"} {
		if got := client.Get(t.Context(), name).Val(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
