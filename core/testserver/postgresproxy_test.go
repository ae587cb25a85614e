package testserver_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/testserver"
)

// TestPostgresProxyEnds checks that a proxy stops with its test, even during a partition
// or while a statement is held. Otherwise a test that failed midway could not report its
// failure.
func TestPostgresProxyEnds(t *testing.T) {
	server := testserver.StartPostgres(t)
	for name, trouble := range map[string]func(t *testing.T, p *testserver.Proxy, send func()){
		"while the line is stalled": func(_ *testing.T, p *testserver.Proxy, send func()) {
			p.Partition()
			send()
		},
		"while a statement is held": func(t *testing.T, p *testserver.Proxy, send func()) {
			f := p.Inject(testserver.Statement("SELECT 1"), testserver.HoldRequest)
			send()
			f.Await(t)
		},
	} {
		var sent sync.WaitGroup
		t.Run(name, func(t *testing.T) {
			p := testserver.NewPostgresProxy(t, server.Addr)
			conn, err := pgx.Connect(t.Context(), server.URLAt(p.Addr))
			if err != nil {
				t.Fatal(err)
			}
			trouble(t, p, func() {
				sent.Go(func() { _, _ = conn.PgConn().Exec(t.Context(), "SELECT 1").ReadAll() })
			})
		})
		sent.Wait()
	}
}
