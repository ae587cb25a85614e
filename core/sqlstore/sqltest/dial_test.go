package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
)

type slowDialer struct {
	mu    sync.Mutex
	pause time.Duration
	dials int
}

func (d *slowDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	d.dials++
	pause := d.pause
	d.mu.Unlock()
	time.Sleep(pause)
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// TestMariaDB_SlowDial checks that a call dials at most once after a restart, even if the
// dial takes long. MySQL refuses a client after many handshakes that were not finished.
//
// hazard 23
func TestMariaDB_SlowDial(t *testing.T) {
	t.Parallel()
	const size = 4
	server := mariaDB.Get(t).NewDatabase(t)
	proxy := testserver.NewMySQLProxy(t, server.Addr)
	d := database{sqlstore.MySQL, "mysql", server.DSNAt(proxy.Addr)}
	d.place(t)
	config, err := mysql.ParseDSN(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	dialer := &slowDialer{}
	config.DialFunc = dialer.dial
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(size)
	s := newStore(t, db, d)
	fill(t, db, size)
	proxy.Sever()
	dialer.mu.Lock()
	dialer.pause, dialer.dials = 700*time.Millisecond, 0
	dialer.mu.Unlock()
	var all sync.WaitGroup
	var late atomic.Int64
	for range size {
		all.Go(func() {
			if _, err := s.Acquire(t.Context(), claim(rand.Text(), long)); err != nil {
				t.Logf("acquire: %v", err) // a busy machine
				late.Add(1)
			}
		})
	}
	all.Wait()
	dialer.mu.Lock()
	defer dialer.mu.Unlock()
	// A call without an answer starts a probe, which dials too.
	if most := size + int(late.Load()); dialer.dials > most {
		t.Errorf("got %d dials, want at most %d", dialer.dials, most)
	}
}
