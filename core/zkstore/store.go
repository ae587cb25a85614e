package zkstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// probeTime is the time limit of a probe. It is longer than the client's pause of a
// second after the client has tried all servers.
const probeTime = 2 * time.Second

// Store stores locks in ZooKeeper. It implements store.Store, store.Watcher,
// store.Checker, store.Inspector and store.Cards. It is safe for concurrent use.
type Store struct {
	config
	conn *zk.Conn
	sess *session

	ctx    context.Context // for the background work
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry              // by key and lease
	owners  map[string]map[*entry]struct{} // holders, by key and owner
	subs    map[string]map[*sub]struct{}   // the watches of waiters, by key and lease
	spies   map[spot]*spy                  // the nodes that are watched
	spots   map[string][]spot              // the spots of a waiter, by its key and lease
	listed  *[]string                      // the names of all keys, for further pages of List
}

// New returns a Store on conn. The caller still owns conn, and must close the Store
// before conn. New sends nothing, and conn need not be connected yet.
//
// All holds of a Store end with the session of conn. A crashed holder keeps its key for
// the session's time-out, which the servers decide. A lease is trusted for at most half
// of that time-out, counted from the start of the last confirmed write. Several Stores
// may share a connection.
//
// New fails with store.ErrInvalid if conn or an option is nil, or if an option is
// invalid. It also fails with store.ErrInvalid if WithSessionTimeout is missing and
// this version of the client library hides the session's time-out.
func New(conn *zk.Conn, opts ...Option) (*Store, error) {
	if conn == nil {
		return nil, fmt.Errorf("zkstore: new: connection is nil: %w", store.ErrInvalid)
	}
	c := config{root: defaultRoot, acl: zk.WorldACL(zk.PermAll)}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("zkstore: new: option is nil: %w", store.ErrInvalid)
		}
		opt(&c)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	granted := grantedBy(conn)
	if c.session == 0 && granted == nil {
		return nil, fmt.Errorf("zkstore: new: the client library hides the session time-out, set WithSessionTimeout: %w", store.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		config: c, conn: conn, sess: &session{conn: conn, granted: granted, timeout: c.session}, ctx: ctx, cancel: cancel,
		entries: make(map[string]*entry), owners: make(map[string]map[*entry]struct{}),
		subs: make(map[string]map[*sub]struct{}), spies: make(map[spot]*spy),
		spots: make(map[string][]spot),
	}
	s.sess.gate.Watch(probeTime, s.probe)
	return s, nil
}

// Close stops the background work of the Store and waits for it, for at most three
// seconds. It releases nothing. Holds then last until the session expires, even if
// their TTL is shorter, because the Store's timers are stopped. Close fails if requests
// are still in progress after the three seconds.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, e := range s.entries {
		if e.hold != nil {
			e.hold.timer.Stop()
		}
	}
	s.mu.Unlock()
	s.cancel()
	s.sess.gate.Close()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("zkstore: close: requests are still under way; they end with the connection")
	}
}

// background starts f in a goroutine, unless the Store is closed. It reports whether it
// did.
func (s *Store) background(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

func (s *Store) dir(key string) string { return s.root + "/" + escape(key) }

// entry is the state of one lease of one key, as far as this Store knows it.
type entry struct {
	key, id string
	turn    chan struct{} // full while an operation is in progress
	refs    int           // the number of operations, including waiting operations
	hold    *hold         // nil if there is no node
	refused time.Time     // the time until which the lease has a tombstone
}

// hold is a node of our session for a lease. The node is either a hold or a waiter's
// place in the queue. Fields that do not change once the node exists may be read
// without a lock.
type hold struct {
	entry     *entry
	dir, path string
	session   int64
	node      node
	zxid      int64 // the zxid from which the hold's token follows, see token

	plus     int64         // the addition to the token
	version  int32         // the version of the node's data
	shared   bool          // other sessions may have nodes of the lease
	ttl      time.Duration // the TTL that the node's data shows
	admitted bool          // it is a hold, not a waiter's place
	granted  time.Time     // the time at which it was admitted
	until    time.Time     // the time at which it expires
	timer    *time.Timer
}

func (s *Store) entryOf(c store.Claim) *entry {
	id := c.Key + "\x00" + c.Lease
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e == nil {
		e = &entry{key: c.Key, id: id, turn: make(chan struct{}, 1)}
		s.entries[id] = e
	}
	e.refs++
	return e
}

// put drops a reference to e, and removes e if nothing is left in it.
func (s *Store) put(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.refs--; e.refs == 0 && e.hold == nil && time.Now().After(e.refused) && s.entries[e.id] == e {
		delete(s.entries, e.id)
	}
}

// keep records a node that was just created.
func (s *Store) keep(h *hold, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.entry.hold = h
	h.until = time.Now().Add(life)
	h.timer = time.AfterFunc(life, func() { s.background(func() { s.expire(h) }) })
	if s.closed {
		h.timer.Stop()
	}
}

// span returns the lifetime of a hold that has just been confirmed. It is the TTL, but
// at most the time for which the hold can be trusted. So a holder that was cut off for
// longer learns of the loss. The key is free when the connection is back.
func (s *Store) span(h *hold, ttl time.Duration) time.Duration {
	return min(ttl, max(s.sess.valid(h.session, time.Now()), 0))
}

// prolong makes h last for ttl from now, or until the trust in its session ends if that
// is earlier. It never shortens h.
func (s *Store) prolong(h *hold, ttl time.Duration) {
	d := s.span(h, ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(d); until.After(h.until) {
		h.until = until
		h.timer.Reset(d)
	}
}

// forget drops a hold whose node is deleted or about to be.
func (s *Store) forget(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.entry.hold != h {
		return
	}
	h.entry.hold = nil
	h.timer.Stop()
	if o := ownerID(h.entry.key, h.node.owner); s.owners[o] != nil {
		delete(s.owners[o], h.entry)
		if len(s.owners[o]) == 0 {
			delete(s.owners, o)
		}
	}
	s.unwatchAll(h.entry.id)
}

func ownerID(key, owner string) string { return key + "\x00" + owner }

// live returns the entry's hold, or nil. It first drops a hold that has expired or
// whose session is gone.
func (s *Store) live(e *entry) *hold {
	s.mu.Lock()
	h := e.hold
	over := h != nil && !time.Now().Before(h.until)
	s.mu.Unlock()
	switch {
	case h == nil:
		return nil
	case !s.sess.current(h.session):
		s.forget(h)
		return nil
	case over:
		s.forget(h)
		s.remove(h.path, h.session)
		return nil
	}
	return h
}

// expire deletes a hold or a waiter's place that has expired. This Store has to delete
// it, because the session would keep the node alive.
func (s *Store) expire(h *hold) {
	select {
	case h.entry.turn <- struct{}{}:
		defer func() { <-h.entry.turn }()
	case <-s.ctx.Done():
		return
	}
	s.mu.Lock()
	left := time.Until(h.until)
	known := h.entry.hold == h
	if known && left > 0 {
		h.timer.Reset(left)
	}
	s.mu.Unlock()
	if !known || left > 0 {
		return
	}
	s.forget(h)
	s.remove(h.path, h.session)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := h.entry; e.refs == 0 && e.hold == nil && s.entries[e.id] == e {
		delete(s.entries, e.id)
	}
}
