package taskmw_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/taskmw"
)

// childEnv is the environment variable that makes the test binary an asynq server in a
// separate process. Its value is a plan.
const childEnv = "LOCKKIT_TASKMW_CHILD"

// plan has the settings of a server whose handler is of type jobs.
type plan struct {
	Name, Addr string
	TTL        time.Duration
	Workers    int
}

// jobs is the handler of a server with a plan.
type jobs struct {
	plan
	db *redis.Client
}

// register accepts a write if its token is at least the greatest token so far.
var register = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or '0') then
	return redis.call('HINCRBY', KEYS[1], 'refused', 1)
end
redis.call('HSET', KEYS[1], 'token', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'effects', 1)`)

// ProcessTask reports its beginning, waits for permission to continue without checking
// its context, and writes to the register of its key.
func (j *jobs) ProcessTask(ctx context.Context, t *asynq.Task) error {
	lease, _ := core.LeaseFromContext(ctx)
	attempt, _ := once.AttemptFromContext(ctx)
	key := strings.TrimPrefix(lease.Key(), "order:")
	ctx = context.WithoutCancel(ctx)
	begun := j.Name + " as attempt " + strconv.Itoa(attempt)
	if err := j.db.RPush(ctx, "begun:"+key, begun).Err(); err != nil {
		return err
	}
	for {
		n, err := j.db.Exists(ctx, "go:"+j.Name).Result()
		if err != nil {
			return err
		}
		if n == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := register.Run(ctx, j.db, []string{"register:" + key}, int64(lease.Token())).Err(); err != nil {
		return err
	}
	return j.db.Incr(ctx, "written:"+j.Name).Err()
}

// server returns a server with the settings of p, not started yet, and its handler.
func (p plan) server(db *redis.Client, l *core.Locker) (*asynq.Server, asynq.Handler, error) {
	o, err := once.New(l, once.Acquire(core.TTL(p.TTL)))
	if err != nil {
		return nil, nil, err
	}
	lock := taskmw.Lock(l, "order", taskmw.Payload("id"), taskmw.Acquire(core.TTL(p.TTL)))
	run := taskmw.Idempotent(o, "order", taskmw.Payload("id"))
	cfg := config()
	cfg.Concurrency = p.Workers
	return asynq.NewServerFromRedisClient(db, taskmw.Configure(cfg)), lock(run(&jobs{p, db})), nil
}

// childMain is the main function of a child. It returns at the end of standard input.
func childMain(text string) int {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		panic(err)
	}
	db := redis.NewClient(&redis.Options{Addr: p.Addr, PoolSize: 100})
	store, err := redisstore.New(db)
	if err != nil {
		panic(err)
	}
	l, err := core.New(store)
	if err != nil {
		panic(err)
	}
	server, h, err := p.server(db, l)
	if err == nil {
		err = server.Start(h)
	}
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// child is a server of jobs in a separate process. It ends with the test.
type child struct{ *testserver.Process }

func newChild(t *testing.T, p plan) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// Without this setting a program with the race detector waits for a second before
	// it exits.
	cmd.Env = append(os.Environ(), childEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	return &child{testserver.StartProcess(t, cmd)}
}

// begin starts a server with the settings of p in this process.
func (r *rig) begin(p plan) {
	r.t.Helper()
	db := testclient.Redis(r.t, r.server.Addr)
	server, h, err := p.server(db, r.locker())
	if err == nil {
		err = server.Start(h)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(server.Shutdown)
}

// expire makes asynq treat the workers of all active tasks as dead.
func (r *rig) expire() {
	r.t.Helper()
	const leases = "asynq:{default}:lease"
	ids, err := r.db.ZRange(r.t.Context(), leases, 0, -1).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, id := range ids {
		past := redis.Z{Score: float64(time.Now().Add(-2 * time.Minute).Unix()), Member: id}
		if err := r.db.ZAddXX(r.t.Context(), leases, past).Err(); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) list(key string) []string {
	r.t.Helper()
	list, err := r.db.LRange(r.t.Context(), key, 0, -1).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}
