package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// silenceLimit is how long an idle connection may take to answer a ping.
	silenceLimit = callLimit / 2
	// silenceMin is how long a caller that leaves earlier has to have waited for it at
	// least, so that the connection is doubted.
	silenceMin = callLimit / 10
)

// connection takes a connection from the pool, which pings one that was idle for a second.
// Such a ping has no time limit of its own. It is never answered if a load balancer or a
// firewall has forgotten the connection. Then connection takes a new one, see renewed.
//
// A wait for the pool or for a new connection is not cut short: it would lose its place.
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

// renewed takes a connection that has just been made or has just answered. All idle ones
// are pinged first, side by side, and those that do not answer are closed. If the pool is at
// its limit, the one that was idle for longest makes room. The pool is the user's: what
// answers stays, and what is in use is left alone.
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
				// pgx closes it, and may hold its place for 15 s to read what arrives.
				_ = idle.Conn().PgConn().Conn().Close()
			}
		}
		if !p.hub.Go(ask) {
			idle.Release()
		}
	}
	return p.pool.Acquire(ctx)
}

// abandon closes the idle connections of the pool, and the one that listens. They lead to
// a server that has become a standby, perhaps. Connections in use are left alone.
func (p *place) abandon(why error) {
	for _, idle := range p.idle() {
		shut(idle.Conn().PgConn())
		idle.Release()
	}
	p.hub.End(why)
}

// idle takes all idle connections of the pool, without a ping. A hook of the pool that asks
// the server gets no time, and then has the pool close the connection.
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
