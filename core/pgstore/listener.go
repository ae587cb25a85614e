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
	// pingEvery and pingLimit limit how long waiters rely on a connection that fell
	// silent.
	pingEvery = 2 * time.Second
	pingLimit = 3 * time.Second
	// deafFor is the pause before the next attempt to listen through a pooler. By then
	// the pooler's mode may have changed.
	deafFor = time.Minute
)

var errUnused = errors.New("the connection that listens is not used")

// listen opens the connection of l and delivers its notifications. It returns when ctx
// is done, the connection breaks, or the connection has had no watches for over a
// minute. It returns errDeaf if the test notification of hears does not arrive.
func (s *Store) listen(ctx context.Context, l *hub.Listener[struct{}]) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// Close waits at most a second for a server that is gone.
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
	checked := time.Now()
	for {
		waiting, stop := context.WithTimeout(ctx, pingEvery)
		n, err := conn.WaitForNotification(waiting)
		stop()
		switch {
		case err == nil:
			l.Wake(n.Payload, nil)
			// Notifications for other processes can arrive all the time.
			if time.Since(checked) < pingEvery {
				continue
			}
			if checked = time.Now(); l.Unused() {
				return errUnused
			}
		case ctx.Err() != nil || waiting.Err() == nil:
			return err
		case l.Unused():
			return errUnused
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

// connect opens a connection with the configuration of WithListener, or otherwise of
// the pool.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if s.separate {
		config := s.listenOn.Copy()
		config.OnNotification = nil
		return pgx.ConnectConfig(ctx, config)
	}
	return connectAs(ctx, s.place.pool.Config())
}

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

// hears returns nil if notifications arrive, and errDeaf if they do not. The connection
// may lead through a pooler that assigns the server's connection to another client
// after each transaction. Notifications for that session would reach other clients, or
// no client. So hears listens to a channel that nobody else uses, and stops listening
// to it afterwards. If the connection leads to the server itself, hears only sends one
// query, by which it recognizes the server.
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
	// The notification is sent on another connection. Meanwhile the listening
	// connection is idle, and a pooler has assigned no session to it.
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
				return err // there was too little time for the notification
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

// listening runs a statement about a channel, and returns the process ID of its session.
func listening(ctx context.Context, conn *pgconn.PgConn, text string) (pid string, err error) {
	return value(ctx, conn, text+";SELECT pg_catalog.pg_backend_pid()", 2)
}

// maxUnlistens is the maximum number of attempts to reach the session that listens
// behind a pooler.
const maxUnlistens = 16

// unlisten makes the session behind a pooler stop listening to a channel, if the pooler
// assigns that session to conn again. Nobody notifies that channel, so a session that
// keeps listening costs little.
func unlisten(conn *pgconn.PgConn, channel, pid string) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceLimit)
	defer cancel()
	for range maxUnlistens {
		if at, err := listening(ctx, conn, "UNLISTEN "+channel); err != nil || at == pid {
			return
		}
	}
}
