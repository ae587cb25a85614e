package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/glebarez/sqlite"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/httpmw"
)

type database struct {
	dialect sqlstore.Dialect
	driver  string
	dsn     string
	with    func(pool gorm.ConnPool) gorm.Dialector
}

var databases = map[string]func(t *testing.T) database{
	"mariadb": func(t *testing.T) database {
		return database{sqlstore.MySQL, "mysql", testserver.StartMariaDB(t).NewDatabase(t).DSN(), func(pool gorm.ConnPool) gorm.Dialector {
			return mysql.New(mysql.Config{Conn: pool})
		}}
	},
	"postgres": func(t *testing.T) database {
		return database{sqlstore.PostgreSQL, "pgx", testserver.StartPostgres(t).URL(), func(pool gorm.ConnPool) gorm.Dialector {
			return postgres.New(postgres.Config{Conn: pool})
		}}
	},
	"sqlite": func(t *testing.T) database {
		const settings = "?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
		return database{sqlstore.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "shop.db") + settings, func(pool gorm.ConnPool) gorm.Dialector {
			return &sqlite.Dialector{Conn: pool}
		}}
	},
}

func (d database) open(t *testing.T) *sql.DB {
	t.Helper()
	pool, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// failing is a pool of connections. The Commit of its next transaction calls end instead.
type failing struct {
	*sql.DB
	mu  sync.Mutex
	end func(*sql.Tx) error
}

func (p *failing) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := p.DB.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	end := p.end
	p.end = (*sql.Tx).Commit
	return &failingTx{tx, end}, nil
}

// GetDBConn lets gorm's sessions with prepared statements find the pool.
func (p *failing) GetDBConn() (*sql.DB, error) { return p.DB, nil }

func (p *failing) fail(end func(*sql.Tx) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = end
}

type failingTx struct {
	*sql.Tx
	end func(*sql.Tx) error
}

func (x *failingTx) Commit() error { return x.end(x.Tx) }

// bank makes one charge for each key.
type bank struct {
	mu      sync.Mutex
	charged map[string]string
	asked   int
}

func (b *bank) charge(_ context.Context, key, order string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if _, ok := b.charged[key]; !ok {
		b.charged[key] = fmt.Sprintf("%s/%d", order, len(b.charged)+1)
	}
	return b.charged[key], nil
}

type site struct {
	*Shop
	pool  *failing
	bank  bank
	in    *sqlstore.Store
	locks *core.Locker
	runs  *once.Once
	web   *gin.Engine
}

func TestMain(m *testing.M) {
	gin.SetMode(gin.TestMode) // before the tests, which run side by side
	m.Run()
}

func newSite(t *testing.T, d database, prepare bool) *site {
	t.Helper()
	s := &site{pool: &failing{DB: d.open(t), end: (*sql.Tx).Commit}, web: gin.New()}
	s.bank.charged = make(map[string]string)
	db, err := gorm.Open(d.with(s.pool), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.AutoMigrate(&Order{}); err != nil {
		t.Fatal(err)
	}
	locks := d.open(t)
	if err := sqlstore.Migrate(t.Context(), locks, d.dialect); err != nil {
		t.Fatal(err)
	}
	if s.in, err = sqlstore.New(locks, d.dialect); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.in.Close() })
	if s.locks, err = core.New(s.in); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.locks.Close(ctx)
	})
	if s.runs, err = once.New(s.locks); err != nil {
		t.Fatal(err)
	}
	s.Shop = &Shop{DB: db, Charge: s.bank.charge}
	s.Routes(s.web, s.runs, httpmw.AnyCaller())
	return s
}

// pay sends a request for an order, and repeats it while the response is 503.
func (s *site) pay(order, key string) (r *httptest.ResponseRecorder, tries int) {
	for tries = 1; ; tries++ {
		r = httptest.NewRecorder()
		q := httptest.NewRequest(http.MethodPost, "/orders/"+order+"/pay", strings.NewReader("{}"))
		q.Header.Set("Idempotency-Key", key)
		s.web.ServeHTTP(r, q)
		if r.Code != http.StatusServiceUnavailable || tries == 50 {
			return r, tries
		}
	}
}

func TestPay(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, prepare := range []bool{false, true} {
				t.Run(fmt.Sprintf("PrepareStmt %v", prepare), func(t *testing.T) { testPay(t, newSite(t, d, prepare), prepare) })
			}
		})
	}
}

var errOwn = errors.New("of the test")

func testPay(t *testing.T, s *site, prepare bool) {
	for _, c := range []struct {
		name string
		end  func(*sql.Tx) error
		runs int
	}{
		{"committed", (*sql.Tx).Commit, 1},
		{"commit fails", func(tx *sql.Tx) error { return errors.Join(errOwn, tx.Rollback()) }, 2},
		{"commit fails unseen", (*sql.Tx).Rollback, 2},
		{"commit without reply", func(tx *sql.Tx) error { return errors.Join(errOwn, tx.Commit()) }, 1},
	} {
		id := strings.ReplaceAll(fmt.Sprintf("%s %v", c.name, prepare), " ", "-")
		s.pool.fail(c.end)
		asked, charged := s.bank.asked, len(s.bank.charged)
		first, tries := s.pay(id, id)
		again, _ := s.pay(id, id)
		if first.Code != http.StatusCreated || again.Code != first.Code || again.Body.String() != first.Body.String() || again.Header().Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: got %d %q after %d tries, and then %d %q", c.name, first.Code, first.Body, tries, again.Code, again.Body)
		}
		if n := s.bank.asked - asked; n != c.runs || len(s.bank.charged) != charged+1 {
			t.Errorf("%s: got %d runs and %d charges, want %d and 1", c.name, n, len(s.bank.charged)-charged, c.runs)
		}
		clear(s.bank.charged) // the provider has forgotten its key
		charged = -1
		if other, _ := s.pay(id, "other-"+id); other.Body.String() != first.Body.String() || len(s.bank.charged) != charged+1 {
			t.Errorf("%s: under another key got %d %q and %d charges", c.name, other.Code, other.Body, len(s.bank.charged)-charged)
		}
		if nobodys, _ := s.pay("", "no-"+id); nobodys.Code != http.StatusNotFound {
			t.Errorf("%s: without an ID got %d %q", c.name, nobodys.Code, nobodys.Body)
		}
		var rows int64
		if err := s.DB.Model(&Order{}).Where("id = ?", id).Count(&rows).Error; err != nil || rows != 1 {
			t.Errorf("%s: got %d orders and %v, want 1", c.name, rows, err)
		}
	}
}

// TestIn_NoTransaction checks that Commit outside a transaction fails, and that Do then
// returns an error and no value.
func TestIn_NoTransaction(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, prepare := range []bool{false, true} {
				s := newSite(t, d, prepare)
				var err error
				out, failed := s.runs.Do(t.Context(), once.Call{Name: "order", Key: fmt.Sprint(prepare)}, func(ctx context.Context) (once.Answer, error) {
					a := once.Answer{Value: []byte("untrue")}
					err = once.Commit(ctx, In(s.DB), a)
					return a, nil
				})
				if !errors.Is(err, core.ErrInvalid) || failed == nil || out.Value != nil {
					t.Errorf("PrepareStmt %v: got %v, and %q with %v, want %v", prepare, err, out.Value, failed, core.ErrInvalid)
				}
			}
		})
	}
}
