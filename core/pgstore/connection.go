package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// silenceLimit limits how long an idle connection may take to answer a ping.
	silenceLimit = callLimit / 2
	// silenceMin is the least wait of a caller that leaves earlier after which the connection is
	// taken for silent.
	silenceMin = callLimit / 10
)

// connection takes a connection from the pool, which pings one that was idle for a second. The
// ping has no time limit of its own. If a load balancer or a firewall has forgotten the connection,
// the ping is never answered. Then connection takes a new one, see renewed.
//
// A wait for the pool or for a new connection is not limited further: it would lose its place.
func (p *place) connection(ctx context.Context) (*pgxpool.Conn, error) {
	if p.silent.CompareAndSwap(true, false) {
		return p.renewed(ctx)
	}
	if p.pool.Stat().IdleConns() == 0 {
		return p.pool.Acquire(ctx)
	}
	begun := time.Now()
	pinging, cancel := context.WithTimeout(ctx, silenceLimit)
	defer cancel()
	conn, err := p.pool.Acquire(pinging)
	switch {
	case err == nil || pinging.Err() == nil:
	case ctx.Err() == nil:
		return p.renewed(ctx)
	case time.Since(begun) >= silenceMin:
		p.silent.Store(true)
	}
	return conn, err
}

// renewed takes a connection that was just made or has just answered. First it pings all idle ones
// at once and closes those that do not answer. If the pool is at its limit, renewed closes the
// connection that was idle for longest. The pool is the user's: connections that answer or are in
// use stay open.
func (p *place) renewed(ctx context.Context) (*pgxpool.Conn, error) {
	all := p.idle()
	if stat := p.pool.Stat(); len(all) > 0 && stat.TotalConns() >= stat.MaxConns() {
		// The pool has no room for a new one. The last one was idle for longest.
		last := all[len(all)-1]
		all = all[:len(all)-1]
		shut(last.Conn().PgConn())
		last.Release()
	}
	for _, idle := range all {
		ask := func() {
			defer idle.Release()
			defer func() { _ = recover() }() // in a hook of the configuration
			pinging, cancel := context.WithTimeout(context.Background(), silenceLimit)
			defer cancel()
			if idle.Ping(pinging) != nil {
				// pgx closes it, and may hold its place for 15 s to read the rest.
				_ = idle.Conn().PgConn().Conn().Close()
			}
		}
		if !p.hub.Go(ask) {
			idle.Release()
		}
	}
	return p.pool.Acquire(ctx)
}

// abandon closes the idle connections of the pool, and the one that listens. They may lead to a
// server that has become a standby. Connections in use stay open.
func (p *place) abandon(why error) {
	for _, idle := range p.idle() {
		shut(idle.Conn().PgConn())
		idle.Release()
	}
	p.hub.End(why)
}

// idle takes all idle connections of the pool, without a ping. Its context is done, so a hook of
// the pool that asks the server fails, and the pool closes that connection.
func (p *place) idle() []*pgxpool.Conn {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return p.pool.AcquireAllIdle(over)
}

// shut closes a connection, which the pool drops when it is released.
func shut(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
