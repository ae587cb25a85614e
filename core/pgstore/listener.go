package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// These bound how long a waiter relies on a connection that died in silence, and how long
// an unused connection is kept.
const (
	pingEvery  = 2 * time.Second
	pingLimit  = 3 * time.Second
	closeAfter = time.Minute
	deafFor    = time.Minute // until a pooler is tried again: its mode may have been changed
)

// listener listens to the Store's channel on one connection.
type listener struct {
	live   chan struct{} // closed when it receives notifications
	ended  chan struct{} // closed when it broke, after err was set
	err    error
	cancel context.CancelFunc

	// Under the hub's mutex.
	watchers map[string][]*watcher
	used     time.Time // when a watch last came or went
}

// open starts a listener. The caller holds the mutex.
func (h *hub) open() *listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{
		live: make(chan struct{}), ended: make(chan struct{}),
		cancel: cancel, watchers: make(map[string][]*watcher),
	}
	h.wg.Go(func() {
		defer cancel()
		err := h.run(ctx, l)
		h.end(l, err)
	})
	return l
}

// run returns when the listener ends.
func (h *hub) run(ctx context.Context, l *listener) (err error) {
	defer func() {
		if r := recover(); r != nil { // in a hook of the configuration
			err = fmt.Errorf("panic in the client: %v", r)
		}
	}()
	conn, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// It ends with the process at the latest; a server that is gone is not
		// waited for.
		closing, cancel := context.WithTimeout(context.Background(), callLimit/2)
		defer cancel()
		_ = conn.Close(closing)
	}()
	setting, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if _, err := conn.PgConn().Exec(setting, "LISTEN "+h.channel).ReadAll(); err != nil {
		return err
	}
	if err := h.hears(setting, conn); err != nil {
		return err
	}
	close(l.live)
	for {
		waiting, stop := context.WithTimeout(ctx, pingEvery)
		n, err := conn.WaitForNotification(waiting)
		stop()
		switch {
		case err == nil:
			h.wake(l, n.Payload)
		case ctx.Err() != nil || waiting.Err() == nil:
			return err
		case h.unused(l):
			return errors.New("the connection that listens is not used")
		default:
			pinging, stop := context.WithTimeout(ctx, pingLimit)
			err := conn.Ping(pinging)
			stop()
			if err != nil {
				return err
			}
		}
	}
}

// connect makes a connection like those of the pool, or as WithListener says.
func (h *hub) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if h.store.separate {
		return pgx.ConnectConfig(ctx, h.store.listenOn.Copy())
	}
	return h.connectAs(ctx, h.store.pool.Config())
}

// connectAs connects as a pool does.
func (h *hub) connectAs(ctx context.Context, pool *pgxpool.Config) (*pgx.Conn, error) {
	config := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil
	return pgx.ConnectConfig(ctx, config)
}

// hears finds out whether notifications arrive. Behind a pooler that gives a
// connection of the server to another client after each transaction they go
// astray. The process that answers tells that there is no pooler; if there is
// one, a notification is sent from elsewhere while this connection is idle.
func (h *hub) hears(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 1 && len(rows[0].Rows) == 1 && string(rows[0].Rows[0][0]) == fmt.Sprint(conn.PgConn().PID()) {
		return nil
	}
	probe := rand.Text()
	if _, err := h.store.once(ctx, fmt.Sprintf("SELECT pg_notify('%s', '%s')", h.channel, probe)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit/2)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && n.Payload == probe:
			return nil
		case err == nil:
		case ctx.Err() != nil && !conn.IsClosed():
			return errDeaf
		default:
			return err
		}
	}
}

func (h *hub) unused(l *listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(l.watchers) == 0 && time.Since(l.used) > closeAfter
}
