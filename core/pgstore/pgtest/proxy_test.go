package pgtest_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/pgstore/pgtest"
)

// A test that fails midway leaves its line stalled, or a statement held. That
// must not keep the proxy from ending, and the test from telling why it failed.
func TestProxyEnds(t *testing.T) {
	server := pgtest.Start(t)
	for name, trouble := range map[string]func(t *testing.T, p *pgtest.Proxy, send func()){
		"while the line is stalled": func(_ *testing.T, p *pgtest.Proxy, send func()) {
			p.Stall()
			send()
		},
		"while a statement is held": func(t *testing.T, p *pgtest.Proxy, send func()) {
			f := p.Inject(pgtest.HoldRequest, "SELECT 1")
			send()
			f.Await(t)
		},
	} {
		var sent sync.WaitGroup
		t.Run(name, func(t *testing.T) {
			p := pgtest.NewProxy(t, server.Port)
			conn, err := pgx.Connect(t.Context(), p.URL())
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
