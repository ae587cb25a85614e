package cronmw_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/taskmw/cronmw"
)

// replicaEnv names the environment variable that makes the test binary a replica, which
// schedules two jobs. The value of the variable is the address of a Redis server.
const replicaEnv = "LOCKKIT_CRONMW_REPLICA"

func TestMain(m *testing.M) {
	if addr := os.Getenv(replicaEnv); addr != "" {
		replica(addr)
	}
	os.Exit(m.Run())
}

// patience limits the time for which a test waits for an event.
const patience = 60 * time.Second

// report is a line that a replica prints.
type report struct {
	Job   string // "gocron" or "cron"
	Ran   bool   // true: the job begins to run; false: its scheduled time has come
	At    int64  // the time of the report, in nanoseconds since 1970
	Since int64  // if Ran is true, the At of the report of this scheduled time
}

// replica schedules one job by gocron and one by cron, every second. Both jobs take a
// millisecond. When its parent has exited, the next report kills the replica, because
// the pipe is broken.
func replica(addr string) {
	store, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1}))
	if err != nil {
		panic(err)
	}
	locks, err := core.New(store)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	out, since := json.NewEncoder(os.Stdout), map[string]int64{}
	turn := func(job string) {
		mu.Lock()
		defer mu.Unlock()
		since[job] = time.Now().UnixNano()
		_ = out.Encode(report{Job: job, At: since[job]})
	}
	run := func(job string) func() {
		return func() {
			mu.Lock()
			_ = out.Encode(report{Job: job, Ran: true, At: time.Now().UnixNano(), Since: since[job]})
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	}
	c := cron.New(cron.WithSeconds(), cron.WithChain(
		func(job cron.Job) cron.Job {
			return cron.FuncJob(func() {
				turn("cron")
				job.Run()
			})
		},
		cron.SkipIfStillRunning(cron.DiscardLogger),
		cronmw.Once(locks, "cron", keep, cron.DiscardLogger)))
	_, err = c.AddFunc("* * * * * *", run("cron"))
	if err != nil {
		panic(err)
	}
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(asked{cronmw.Locker(locks, keep), func() { turn("gocron") }}))
	if err != nil {
		panic(err)
	}
	if _, err := s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(run("gocron")), gocron.WithName("gocron"),
		gocron.WithSingletonMode(gocron.LimitModeReschedule)); err != nil {
		panic(err)
	}
	c.Start()
	s.Start()
	select {}
}

// asked is a locker that calls turn before it acquires the lock.
type asked struct {
	gocron.Locker
	turn func()
}

func (a asked) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	a.turn()
	return a.Locker.Lock(ctx, name)
}

// TestReplicas runs three processes that schedule the same jobs every second. All
// processes use the same clock, so only delays of the machine make their times differ.
func TestReplicas(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	slots := tally.AllTrials(60)
	server := testserver.StartRedis(t)
	var mu sync.Mutex
	var all []report
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), replicaEnv+"="+server.Addr, "GORACE=atexit_sleep_ms=0 halt_on_error=1")
		out, stdout, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = stdout
		testserver.StartProcess(t, cmd)
		_ = stdout.Close()
		go func() {
			defer out.Close()
			for lines := bufio.NewScanner(out); lines.Scan(); {
				var r report
				if json.Unmarshal(lines.Bytes(), &r) == nil {
					mu.Lock()
					all = append(all, r)
					mu.Unlock()
				}
			}
		}()
	}
	ran := func(job string) (runs []report, turns int) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range all {
			switch {
			case r.Job == job && r.Ran:
				runs = append(runs, r)
			case r.Job == job:
				turns++
			}
		}
		slices.SortFunc(runs, func(a, b report) int { return int(a.At - b.At) })
		return runs, turns
	}
	for _, job := range []string{"gocron", "cron"} {
		t.Run(job, func(t *testing.T) {
			testserver.Eventually(t, patience+2*time.Duration(slots)*time.Second, "the job runs", func() bool {
				runs, turns := ran(job)
				return len(runs) > slots && turns > 2*slots
			})
			runs, turns := ran(job)
			late := 0
			for i, r := range runs {
				if i > 0 && r.At-runs[i-1].Since < int64(keep) {
					// The previous run acquired the lock after its Since, and this run
					// before its At.
					t.Errorf("two runs begin within %v", time.Duration(r.At-runs[i-1].Since))
				}
				if r.Since%int64(time.Second) > int64(keep) {
					late++ // possible on a busy machine
				}
			}
			seconds := int(runs[len(runs)-1].Since/int64(time.Second)-runs[0].Since/int64(time.Second)) + 1
			t.Logf("%d runs in %d slots, %d turns of three processes, %d runs came late", len(runs), seconds, turns, late)
			if len(runs)-late > seconds+1 {
				t.Errorf("%d runs in %d slots", len(runs), seconds)
			}
		})
	}
}
