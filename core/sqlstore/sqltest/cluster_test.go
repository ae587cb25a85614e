package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
)

// rewriting is a connector of MariaDB that replaces texts in queries, so that the server
// answers like a server with other settings.
type rewriting struct {
	dsn  string
	with *strings.Replacer
}

func (r rewriting) Connect(context.Context) (driver.Conn, error) {
	c, err := r.Driver().Open(r.dsn)
	if err != nil {
		return nil, err
	}
	return &rewritingConn{traced{c.(connection)}, r.with}, nil
}

func (r rewriting) Driver() driver.Driver { return mysql.MySQLDriver{} }

type rewritingConn struct {
	traced
	with *strings.Replacer
}

func (c *rewritingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.traced.QueryContext(ctx, c.with.Replace(query), args)
}

// as returns a Store that replaces texts in its queries.
func (d database) as(t *testing.T, oldnew ...string) *sqlstore.Store {
	t.Helper()
	db := sql.OpenDB(rewriting{d.dsn, strings.NewReplacer(oldnew...)})
	t.Cleanup(func() { _ = db.Close() })
	return newStore(t, db, d)
}

// galera is the library of Galera in Debian's package galera-4.
const galera = "/usr/lib/galera/libgalera_smm.so"

const severalWrite = "several servers of a Galera cluster may write"

// TestMariaDB_Galera checks that Check refuses a server of a Galera cluster.
func TestMariaDB_Galera(t *testing.T) {
	t.Parallel()
	notOnMySQL(t, "Galera")
	t.Run("simulated cluster", func(t *testing.T) {
		t.Parallel()
		d := onMariaDB(t)
		if err := d.store(t).Check(t.Context()); err != nil {
			t.Errorf("a single server: got %v, want nil", err)
		}
		unfit(t, d.as(t, "variable_name='WSREP_ON' AND variable_value='ON'", "variable_name='WSREP_ON' AND variable_value='OFF'"), severalWrite)
	})
	t.Run("real cluster", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat(galera); err != nil {
			t.Skipf("Galera is not installed (apt-get install galera-4): %v", err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0") // a free port for the cluster
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		server := testserver.StartMariaDB(t, "wsrep_on = ON", "wsrep_provider = "+galera, "wsrep_cluster_address = gcomm://",
			fmt.Sprintf("wsrep_provider_options = 'gmcast.listen_addr=tcp://%s'", l.Addr()), "wsrep_node_address = 127.0.0.1",
			"binlog_format = ROW", "innodb_autoinc_lock_mode = 2")
		testserver.Eventually(t, time.Minute, "the server is a cluster", func() bool {
			return server.Exec("SELECT variable_value FROM information_schema.global_status WHERE variable_name='WSREP_READY'")[0] == "ON"
		})
		unfit(t, database{sqlstore.MySQL, "mysql", server.NewDatabase(t).DSN()}.store(t), severalWrite)
	})
}

// TestMySQL_Group checks that Check refuses a group of MySQL in which several servers
// write. The test simulates the setting of the group.
func TestMySQL_Group(t *testing.T) {
	t.Parallel()
	d := onMariaDB(t)
	d.place(t)
	of := func(mode string) *sqlstore.Store {
		values := "(SELECT 'group_replication_single_primary_mode' AS variable_name,'" + mode + "' AS variable_value) g"
		return d.as(t, "/*!80000 EXISTS (SELECT * FROM performance_schema.global_variables WHERE variable_name='group", "EXISTS (SELECT * FROM "+values+" WHERE variable_name='group",
			"variable_value='OFF') OR */ 1=0", "variable_value='OFF') OR 1=0")
	}
	unfit(t, of("OFF"), "set group_replication_single_primary_mode=ON")
	if err := of("ON").Check(t.Context()); err != nil {
		t.Errorf("one primary: got %v, want nil", err)
	}
}
