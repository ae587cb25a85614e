package charge_test

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
	"github.com/lockkit/lockkit/examples/recipes/charge"
)

// payerOf names an environment variable. If the variable has the server's address, the
// test's program becomes a process that is killed after its charge.
const payerOf = "CHARGE_PROCESS"

func TestMain(m *testing.M) {
	addr := os.Getenv(payerOf)
	if addr == "" {
		os.Exit(m.Run())
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	_, err := pay(client, redisBank{client, func() { select {} }})
	panic(err)
}

// redisBank is a bank in Redis that all processes share.
type redisBank struct {
	client *redis.Client
	die    func() // called between the charge and the answer
}

func (b redisBank) Charge(ctx context.Context, key string, cents int) (string, error) {
	isNew, err := b.client.SetNX(ctx, "bank:"+key, cents, 0).Result()
	if err != nil {
		return "", err
	}
	if isNew {
		b.client.IncrBy(ctx, "taken", int64(cents))
	}
	b.client.Incr(ctx, "calls")
	b.die()
	return "receipt of " + key, nil
}

func pay(client *redis.Client, bank charge.Bank) (string, error) {
	store, err := redisstore.New(client)
	if err != nil {
		return "", err
	}
	locks, err := core.New(store)
	if err != nil {
		return "", err
	}
	defer func() { _ = locks.Close(context.Background()) }()
	runs, err := once.New(locks, once.Acquire(core.TTL(2*time.Second), core.Wait(time.Minute)))
	if err != nil {
		return "", err
	}
	return charge.Pay(context.Background(), runs, bank, "ann", "k", 500)
}

// TestPay_ProcessKilled kills a process between the charge and its answer. The client
// repeats the request at another process, which calls the bank again. The bank charges
// once.
func TestPay_ProcessKilled(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	client := testclient.Redis(t, server.Addr)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), payerOf+"="+server.Addr)
	child := testserver.StartProcess(t, cmd)
	testserver.Eventually(t, time.Minute, "the charge is made", func() bool {
		return client.Get(t.Context(), "calls").Val() == "1"
	})
	child.Kill()
	lives := redisBank{client, func() {}}
	first, err := pay(client, lives)
	if err != nil || first == "" {
		t.Fatalf("got %q, %v", first, err)
	}
	if again, err := pay(client, lives); again != first || err != nil {
		t.Errorf("once more: got %q, %v, want %q", again, err, first)
	}
	for name, want := range map[string]string{"taken": "500", "calls": "2"} {
		if got := client.Get(t.Context(), name).Val(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
