package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

var (
	// errReadOnly is the error of a probe whose server accepts no writes.
	errReadOnly = errors.New(standby.advice)
	errMoved    = errors.New("the connection leads to a server that takes no writes, and another one does")
)

// Probe implements casstore.Prober on a connection outside the pool, because all
// connections of the pool may be in use or lead to another server.
func (p *place) Probe(ctx context.Context) error {
	config := p.pool.Config()
	conn, err := connectAs(ctx, config)
	if err == nil {
		defer conn.Close(ctx)
		if config.AfterConnect != nil { // it can make the session writable
			err = config.AfterConnect(ctx, conn)
		}
	}
	if err == nil {
		err = p.writable(ctx, conn.PgConn())
	}
	if c, ok := classOf(err); ok && c.unchanged && !c.away {
		return nil // the server has answered
	}
	if err == nil {
		p.found()
	}
	return err
}

// writable returns nil if the transaction of a call could write.
func (p *place) writable(ctx context.Context, conn *pgconn.PgConn) error {
	const text = "SHOW transaction_read_only"
	a, err := answer{}, error(nil)
	if p.isolated.Load() {
		a, err = committed(ctx, conn, text)
	} else {
		a, err = results(ctx, conn, text, 1)
	}
	if err == nil && len(a.rows) == 1 && len(a.rows[0]) == 1 && string(a.rows[0][0]) == "on" {
		return errReadOnly
	}
	return err
}

// moved records that a server accepted no locks. At the first such record it closes the
// idle connections and the connection that listens, which may lead to that server too.
func (p *place) moved(why error) {
	if p.away.CompareAndSwap(false, true) {
		p.abandon(why)
	}
}

// found records that a server accepts locks again. At the first such record it closes
// the idle connections and the connection that listens, which may still lead to the
// other server.
func (p *place) found() {
	if p.away.CompareAndSwap(true, false) {
		p.abandon(errMoved)
	}
}
