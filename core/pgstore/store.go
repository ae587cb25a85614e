package pgstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/store"
)

// callLimit limits how long a call takes, including the wait for a connection. The
// server waits for the lock of a row for at most half of callLimit.
const callLimit = 2 * time.Second

// Store stores locks in PostgreSQL. It implements store.Store for every kind of claim,
// and store.Watcher, store.Checker, store.Prompt, store.Inspector and store.Cards. It is
// safe for concurrent use.
//
// A Store sends a statement again only if the first attempt has certainly changed
// nothing. A call returns soon after its ctx is done, and at the latest after two
// seconds. Watch can take four seconds, and so can a Look or List that finds nothing.
// Check and Cards can take longer. A statement that was sent by then continues on its
// connection, for at most two more seconds. So callers that leave early do not close
// the pool's connections. An error shows whether anything can have changed, as
// store.Store demands.
type Store struct {
	*casstore.Store
	config
	place *place
	// deaf is the time until which the Store does not listen, because notifications did
	// not arrive. It is nil at first.
	deaf atomic.Pointer[time.Time]
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Checker = (*Store)(nil)
	_ store.Prompt  = (*Store)(nil)

	_ store.Inspector = (*Store)(nil)
	_ store.Cards     = (*Store)(nil)
)

// New returns a Store that uses pool. The caller closes the pool after the Store. New
// sends nothing. Call Migrate to prepare the database, and Check to find out whether
// the database is fit.
//
// New fails with store.ErrInvalid for a nil pool, a nil option, and WithListener(nil).
func New(pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("pgstore: new: pool is nil: %w", store.ErrInvalid)
	}
	s := &Store{}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("pgstore: new: option is nil: %w", store.ErrInvalid)
		}
		o(&s.config)
	}
	if s.separate && s.listenOn == nil {
		return nil, fmt.Errorf("pgstore: new: the configuration to listen on is nil: %w", store.ErrInvalid)
	}
	s.place = newPlace(pool, hub.New(s.listen))
	var err error
	if s.Store, err = casstore.New(s.place, casstore.WithName("pgstore")); err != nil {
		return nil, err
	}
	return s, nil
}

// Close stops the background work of the Store, closes its watches and refuses further
// watches. It does not close the pool. Claims can still be extended and released. Close
// fails if the connection that listens does not end within two seconds.
func (s *Store) Close() error {
	_ = s.Store.Close() // Close of the embedded Store does not fail
	if !s.place.hub.Close(callLimit) {
		return errors.New("pgstore: close: the connection that listens hangs, and will end by its own time-out")
	}
	return nil
}
