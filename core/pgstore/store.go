package pgstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// callLimit is how long a call takes at the most, the wait for a connection
// included. The server gives up a wait for a row after half of it.
const callLimit = 2 * time.Second

// Store keeps locks in PostgreSQL. It implements store.Store, store.Watcher and
// store.Prompt, and is safe for concurrent use.
//
// Every call is one statement, sent once: the Store repeats only a statement that
// certainly changed nothing. A call returns soon after its ctx ends, or after two
// seconds. A statement that was sent by then goes on and keeps its connection, for two
// seconds from sending at the most, so that callers that give up do not cost the pool
// its connections. An error says whether anything can
// have changed, as store.Store demands.
type Store struct {
	config
	pool *pgxpool.Pool
	// channel is that of the wake-ups for this Store, on which the hub listens.
	channel string
	hub     *hub.Hub[struct{}]
	// deaf is until when notifications are known not to arrive, nil at first.
	deaf atomic.Pointer[time.Time]
	// Transactions of this database see one snapshot by default: each call sets its
	// isolation level.
	isolated atomic.Bool
	// A server took no locks, and no other one was found since.
	away atomic.Bool
	// A connection did not answer: the next call takes a new one.
	silent atomic.Bool
	gate   outage.Gate // of the server
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Prompt  = (*Store)(nil)

	_ store.Inspector = (*Store)(nil)
	_ store.Cards     = (*Store)(nil)
)

// New returns a Store that uses pool, which the caller keeps and closes after
// the Store. It sends nothing: Migrate prepares the database, and Check says
// whether it is fit.
//
// It fails with store.ErrInvalid for a nil pool and for options that cannot work.
func New(pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgstore: pool is nil: %w", store.ErrInvalid)
	}
	s := &Store{pool: pool}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("pgstore: option is nil: %w", store.ErrInvalid)
		}
		o(&s.config)
	}
	if s.separate && s.listenOn == nil {
		return nil, fmt.Errorf("pgstore: the configuration to listen on is nil: %w", store.ErrInvalid)
	}
	s.channel = "lockkit_" + strings.ToLower(rand.Text())
	s.hub = hub.New(s.listen)
	s.gate.Watch(callLimit, s.probe)
	return s, nil
}

// Limit implements store.Prompt: two seconds.
func (s *Store) Limit() time.Duration { return callLimit }

// Close ends the background work of the Store: watches are closed, and
// further ones are refused. It does not close the pool. Claims can still be
// extended and released.
func (s *Store) Close() error {
	s.gate.Close()
	if !s.hub.Close(callLimit) {
		return errors.New("pgstore: close: the connection that listens hangs, and will end by its own time-out")
	}
	return nil
}
