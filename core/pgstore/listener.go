package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/hub"
)

const (
	// pingEvery and pingLimit limit how long a waiter relies on a connection that fell silent.
	pingEvery = 2 * time.Second
	pingLimit = 3 * time.Second
	// deafFor is the pause until a pooler is tried again: its mode may have changed.
	deafFor = time.Minute
)

// listen opens the connection of l and delivers its notifications until ctx is done, the
// connection breaks, or nobody uses it.
func (s *Store) listen(ctx context.Context, l *hub.Listener[struct{}]) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// The process closes it at the latest. A server that is gone is not waited for.
		closing, cancel := context.WithTimeout(context.Background(), callLimit/2)
		defer cancel()
		_ = conn.Close(closing)
	}()
	setting, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := s.hears(setting, conn); err != nil {
		return err
	}
	if _, err := conn.PgConn().Exec(setting, "LISTEN "+dialect.Channel).ReadAll(); err != nil {
		return err
	}
	l.Live()
	for {
		waiting, stop := context.WithTimeout(ctx, pingEvery)
		n, err := conn.WaitForNotification(waiting)
		stop()
		switch {
		case err == nil:
			l.Wake(n.Payload, nil)
		case ctx.Err() != nil || waiting.Err() == nil:
			return err
		case l.Unused():
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

// connect makes a connection like those of the pool, or the one of WithListener.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if s.separate {
		return pgx.ConnectConfig(ctx, s.listenOn.Copy())
	}
	return connectAs(ctx, s.place.pool.Config())
}

// connectAs connects like a pool.
func connectAs(ctx context.Context, pool *pgxpool.Config) (*pgx.Conn, error) {
	config := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil
	return pgx.ConnectConfig(ctx, config)
}

// hears returns nil if notifications arrive, and errDeaf if they do not. The connection may lead
// through a pooler that gives the server's connection to another client after each transaction.
// What it listens to there would go to others, or astray. So hears listens to a channel that nobody
// else has, and stops listening to it. Through a connection to the server itself it only asks
// whether it is one.
func (s *Store) hears(ctx context.Context, conn *pgx.Conn) error {
	pg := conn.PgConn()
	if direct, err := isDirect(ctx, pg); direct || err != nil {
		return err
	}
	channel := "lockkit_" + strings.ToLower(rand.Text())
	pid, err := listening(ctx, pg, "LISTEN "+channel)
	if err != nil {
		return err
	}
	// It is sent from elsewhere, while this connection is idle and not assigned to a session.
	if _, err := s.place.once(ctx, fmt.Sprintf("SELECT pg_catalog.pg_notify('%s', '')", channel)); err != nil {
		unlisten(pg, channel, pid)
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, callLimit/2)
	defer cancel()
	for heard := false; !heard; {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil:
			heard = n.Channel == channel
		case waiting.Err() != nil && !conn.IsClosed():
			unlisten(pg, channel, pid)
			if ctx.Err() != nil {
				return err // it had too little time to hear
			}
			until := time.Now().Add(deafFor)
			s.deaf.Store(&until)
			return errDeaf
		default:
			return err
		}
	}
	_, err = listening(ctx, pg, "UNLISTEN "+channel)
	return err
}

// listening runs a statement that is about a channel, and returns the process of its session.
func listening(ctx context.Context, conn *pgconn.PgConn, text string) (pid string, err error) {
	return value(ctx, conn, text+";SELECT pg_catalog.pg_backend_pid()", 2)
}

// maxUnlistens is how often a pooler is asked for the session that listens.
const maxUnlistens = 16

// unlisten has the session behind a pooler stop listening to a channel, if the pooler assigns
// that session again. Nobody notifies that channel, so a session that goes on costs little.
func unlisten(conn *pgconn.PgConn, channel, pid string) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceLimit)
	defer cancel()
	for range maxUnlistens {
		if at, err := listening(ctx, conn, "UNLISTEN "+channel); err != nil || at == pid {
			return
		}
	}
}
