package pgstore

import "github.com/jackc/pgx/v5"

// Option configures a Store.
type Option func(*config)

type config struct {
	quiet    bool
	separate bool
	listenOn *pgx.ConnConfig
}

// WithoutWakeUps makes the Store open no connection that listens. Watch fails with
// store.ErrUnsupported, and waiters poll.
func WithoutWakeUps() Option {
	return func(c *config) { c.quiet = true }
}

// WithListener makes the Store listen on a connection with the configuration direct.
// The default is the configuration of the pool. Use WithListener if the pool leads
// through a pooler that does not forward notifications. Then direct must lead to the
// server itself. The Store copies direct for each new connection, so do not change
// direct after New.
func WithListener(direct *pgx.ConnConfig) Option {
	return func(c *config) { c.separate, c.listenOn = true, direct }
}
