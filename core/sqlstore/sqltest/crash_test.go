package sqltest

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// childEnv is an environment variable that makes the test binary a child process, which
// runs one call. The variable's value is a plan, with a line for each field.
const childEnv = "LOCKKIT_COMMIT_CHILD"

// plan describes the work of a child.
type plan struct {
	Driver, DSN, Key string
	At               string // the moment at which the child reports and waits for its end
}

// The moments at which a child reports. At atCommit the child does not wait.
const (
	beforeCommit = "before Commit"
	between      = "between Commit and COMMIT"
	atCommit     = "at COMMIT"
	afterCommit  = "after COMMIT"
)

func childMain(text string) int {
	fields := strings.Split(text, "\n")
	p := plan{fields[0], fields[1], fields[2], fields[3]}
	begin := bySQL
	if p.Driver == byPgstore {
		begin = byPgx
	}
	inDatabase, transact := begin(p)
	locks, err := core.New(inDatabase)
	if err != nil {
		panic(err)
	}
	runs, err := once.New(locks, once.Acquire(core.TTL(childTTL)))
	if err != nil {
		panic(err)
	}
	pass := func(moment string) {
		if moment == p.At {
			fmt.Println(moment)
			if moment != atCommit {
				select {}
			}
		}
	}
	work := func(ctx context.Context) (once.Answer, error) {
		n, _ := once.AttemptFromContext(ctx)
		a := once.Answer{Value: fmt.Appendf(nil, "%s by attempt %d", p.Key, n)}
		tx, saver, err := transact(ctx)
		if err != nil {
			return a, err
		}
		pass(beforeCommit)
		if err := once.Commit(ctx, saver, a); err != nil {
			return a, err
		}
		pass(between)
		pass(atCommit)
		err = tx(ctx)
		pass(afterCommit)
		return a, err
	}
	for { // until the server answers in time
		if _, err := runs.Do(context.Background(), order(p.Key), work); err == nil {
			select {}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

const childTTL = 3 * time.Second

// byPgstore is the driver of a plan whose child uses pgstore and a transaction of pgx.
const byPgstore = "pgstore"

// transact begins a transaction with the effect of a run.
type transact func(ctx context.Context) (commit func(context.Context) error, saver once.Saver, err error)

// bySQL returns the store of a child with database/sql, and the function that begins
// transactions.
func bySQL(p plan) (core.Store, transact) {
	dialects := map[string]sqlstore.Dialect{"mysql": sqlstore.MySQL, "pgx": sqlstore.PostgreSQL, "sqlite": sqlstore.SQLite}
	db, err := sql.Open(p.Driver, p.DSN)
	if err != nil {
		panic(err)
	}
	s, err := sqlstore.New(db, dialects[p.Driver])
	if err != nil {
		panic(err)
	}
	orders := db
	if p.Driver == "sqlite" {
		if orders, err = sql.Open(p.Driver, p.DSN+"&_txlock=immediate"); err != nil {
			panic(err)
		}
	}
	return s, func(ctx context.Context) (func(context.Context) error, once.Saver, error) {
		tx, err := orders.BeginTx(ctx, nil)
		if err != nil {
			return nil, nil, err
		}
		return func(context.Context) error { return tx.Commit() }, sqlstore.In(tx), insert(ctx, tx, p.Key)
	}
}

// byPgx does the same as bySQL for a child with pgx.
func byPgx(p plan) (core.Store, transact) {
	pool, err := pgxpool.New(context.Background(), p.DSN)
	if err != nil {
		panic(err)
	}
	s, err := pgstore.New(pool, pgstore.WithoutWakeUps())
	if err != nil {
		panic(err)
	}
	return s, func(ctx context.Context) (func(context.Context) error, once.Saver, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, nil, err
		}
		_, err = tx.Exec(ctx, "INSERT INTO orders (name) VALUES ($1)", p.Key)
		return tx.Commit, pgstore.In(tx), err
	}
}

// TestCommit_Killed kills processes around their COMMIT. It checks that there is one
// order and one answer for each key.
func TestCommit_Killed(t *testing.T) {
	t.Parallel()
	kills := tally.Trials(200)
	killed := func(t *testing.T, d database, driver string) {
		s := newShop(t, d, d, once.Acquire(core.Wait(time.Minute)))
		for _, at := range []string{beforeCommit, between, atCommit, afterCommit} {
			t.Run(at, func(t *testing.T) {
				committed := 0
				side := make(chan bool, 6)
				ended := make(chan bool)
				for i := range kills {
					go func() {
						side <- true
						defer func() { <-side }()
						replayed := false
						defer func() { ended <- replayed }()
						key := fmt.Sprint(strings.ReplaceAll(at, " ", "_"), i)
						kill(t, plan{driver, d.dsn, key, at})
						replayed = s.settle(t, key)
					}()
				}
				for range kills {
					if <-ended {
						committed++
					}
				}
				t.Logf("%d of %d were committed", committed, kills)
				if at != atCommit && committed != map[string]int{beforeCommit: 0, between: 0, afterCommit: kills}[at] {
					t.Errorf("got %d that were committed of %d", committed, kills)
				}
			})
		}
	}
	everywhere(t, func(t *testing.T, d database) { killed(t, d, d.driver) })
	// The child uses pgstore, on the tables of the sqlstore that settles.
	t.Run("pgstore", func(t *testing.T) {
		t.Parallel()
		killed(t, database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t).URL()}, byPgstore)
	})
}

// kill starts a child, and kills it at the moment of the plan.
func kill(t *testing.T, p plan) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{p.Driver, p.DSN, p.Key, p.At}, "\n"), "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	cmd.Stderr = os.Stderr
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	defer out.Close()
	cmd.Stdout = stdout
	child := testserver.StartProcess(t, cmd)
	_ = stdout.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != p.At {
		t.Errorf("the child said %q, %v", line, err)
	}
	if p.At == atCommit && rand.N(2) == 0 {
		time.Sleep(rand.N(time.Millisecond))
	}
	child.Kill()
}

// settle calls Do for key until there is an answer, and checks that there is one order.
// It reports whether the answer was replayed. A replayed answer is the child's.
func (s *shop) settle(t *testing.T, key string) bool {
	var out once.Outcome
	var err error
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		out, err = s.runs.Do(context.Background(), order(key), s.work(t, key, (*sql.Tx).Commit))
		if err == nil {
			break
		}
		if !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) && !errors.Is(err, core.ErrBusy) {
			t.Logf("%s: %v", key, err) // SQLite admits one writer at a time, and may refuse
		}
	}
	if err != nil || string(out.Value) != fmt.Sprintf("%s by attempt %d", key, out.Attempt) {
		t.Errorf("%s: got %q, attempt %d, replayed %v and %v", key, out.Value, out.Attempt, out.Replayed, err)
	}
	again, err := s.runs.Do(context.Background(), order(key), s.work(t, key, (*sql.Tx).Commit))
	if err != nil || string(again.Value) != string(out.Value) || !again.Replayed {
		t.Errorf("%s: got %q and %v, want the answer again", key, again.Value, err)
	}
	if n := s.count(t, key); n != 1 {
		t.Errorf("%s: got %d orders, want 1", key, n)
	}
	return out.Replayed
}
