package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/calls"
)

const (
	// silenceLimit limits how long an idle connection may take to answer a ping.
	silenceLimit = callLimit / 2
	// silenceMin is the minimum wait after which a connection counts as silent. It
	// applies to a caller that leaves before silenceLimit.
	silenceMin = callLimit / 10
	// answerMax is the wait for the answer to a statement after which a connection
	// counts as silent. A statement may wait for a locked row for a second. The time is
	// less than callLimit, so that the caller's next call takes a new connection.
	answerMax = callLimit * 3 / 5
)

// connection takes a connection from the pool. The pool pings a connection that was
// idle for a second, and sets no time limit for the ping. If a load balancer or a
// firewall has forgotten the connection, the ping is never answered. So if a connection
// is idle, connection also calls renewed after silenceLimit, and uses the connection
// that arrives first. If the pool is full, connection then cancels the pool's Acquire.
// Otherwise that Acquire continues, because it may be dialing slowly. After a call
// without an answer, the next call of connection only calls renewed.
//
// The wait for a connection has no further limit. A caller that began again would lose
// its place in the pool's queue.
func (p *place) connection(ctx context.Context) (*pgxpool.Conn, error) {
	if p.silent.CompareAndSwap(true, false) {
		return p.renewed(ctx)
	}
	if p.pool.Stat().IdleConns() == 0 {
		return p.pool.Acquire(ctx)
	}
	begun := time.Now()
	conn, err := calls.Either(ctx, silenceLimit, p.pool.Acquire, p.another, (*pgxpool.Conn).Release)
	if waited := time.Since(begun); err != nil && ctx.Err() != nil && silenceMin <= waited && waited < silenceLimit {
		p.silent.Store(true)
	}
	return conn, err
}

// another takes a second connection while an Acquire may wait for a ping or for a dial.
// If the pool is full, another first cancels that Acquire by stop. A pinged connection
// would leave no room in the pool, and a dial continues without its caller.
func (p *place) another(ctx context.Context, stop func()) (*pgxpool.Conn, error) {
	if stat := p.pool.Stat(); stat.TotalConns() >= stat.MaxConns() {
		stop()
	}
	return p.renewed(ctx)
}

// renewed takes a connection that was just opened or has just answered a ping. If the
// pool is at its limit, renewed first closes the connection that was idle for longest.
// It pings the other idle connections at once, and closes each connection without an
// answer. Other connections that answer or are in use stay open, because the pool is
// the user's.
func (p *place) renewed(ctx context.Context) (*pgxpool.Conn, error) {
	all := p.idle()
	if stat := p.pool.Stat(); len(all) > 0 && stat.TotalConns() >= stat.MaxConns() {
		// The last connection was idle for longest.
		last := all[len(all)-1]
		all = all[:len(all)-1]
		shut(last.Conn().PgConn())
		last.Release()
	}
	for _, idle := range all {
		ask := func() {
			defer idle.Release()
			defer func() { _ = recover() }() // a hook of the configuration may panic
			pinging, cancel := context.WithTimeout(context.Background(), silenceLimit)
			defer cancel()
			if idle.Ping(pinging) != nil {
				// pgx would also close the connection, but would count it for up to 15
				// seconds more.
				_ = idle.Conn().PgConn().Conn().Close()
			}
		}
		if !p.hub.Go(ask) {
			idle.Release()
		}
	}
	return p.pool.Acquire(ctx)
}

// abandon closes the idle connections of the pool, and the connection that listens.
// These connections may lead to a server that has become a standby. Connections in use
// stay open.
func (p *place) abandon(why error) {
	for _, idle := range p.idle() {
		shut(idle.Conn().PgConn())
		idle.Release()
	}
	p.hub.End(why)
}

// idle takes all idle connections of the pool, without a ping. The context of these
// acquires is done. So a hook of the pool that sends a query fails, and the pool closes
// that connection.
func (p *place) idle() []*pgxpool.Conn {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	return p.pool.AcquireAllIdle(over)
}

// shut closes a connection. The pool drops the connection when it is released.
func shut(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
