package zkstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

const (
	width   = 16  // the maximum number of requests of an inspection in flight
	step    = 128 // the number of keys that List reads between two pauses
	rest    = 5 * time.Millisecond
	listing = time.Minute // the time for which later pages reuse the names of all keys
)

// Look implements store.Inspector. It reads the queue and then each of its nodes, 16 at
// a time. Before these reads, it sends a write that leaves nothing. The write returns
// the servers' time and brings the client's server up to date with everything done
// before. Without the rights CREATE and DELETE on the root, ages are unknown, and Left
// is only an upper bound.
//
// Left of a hold follows from the lifetime that its holder has written to its node. If
// the holder has waited and has not extended yet, Left may be the whole TTL. The
// session of a dead process can keep its holds beyond this lifetime. Left is then 0.
// Left of waiters is unknown.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	if err := claims.CheckKey("zkstore: look", key, false); err != nil {
		return store.State{}, err
	}
	state, err := inspect(ctx, s, "look", func(*stage) (store.State, error) {
		now, err := s.moment(ctx)
		if err != nil {
			return store.State{}, err
		}
		return s.show(ctx, key, now)
	})
	return state, readable("look", err)
}

// List implements store.Inspector, in the order of the names of the keys' nodes. The
// first page reads the names of all keys in one request. Later pages reuse these names
// for a minute. List reads each key of a page as Look does, and leaves out keys without
// live entries.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	if err := inspection.CheckPage("zkstore: list", most); err != nil {
		return nil, "", err
	}
	last, err := hex.DecodeString(after)
	if _, ok := unescape(string(last)); err != nil || after != "" && !ok {
		return nil, "", fmt.Errorf("zkstore: list: there is no such page: %w", store.ErrInvalid)
	}
	var more string // not next: the goroutine may outlive List
	page, err = inspect(ctx, s, "list", func(*stage) ([]store.State, error) {
		now, err := s.moment(ctx)
		if err != nil {
			return nil, err
		}
		names, err := s.names(ctx, after == "")
		if err != nil {
			return nil, err
		}
		i, _ := slices.BinarySearch(names, string(last)+"\x00")
		names = names[i:]
		if len(names) > most {
			names = names[:most]
			more = hex.EncodeToString([]byte(names[most-1]))
		}
		return s.showAll(ctx, names, now)
	})
	if err != nil {
		return nil, "", readable("list", err)
	}
	return page, more, nil
}

// Revoke implements store.Inspector. In one transaction it deletes the nodes of a hold.
// If keep is positive, the transaction also creates a node that keeps the hold's weight
// taken. That node lasts for the time keep, or for the rest of the hold's lifetime if
// that is longer. If the holder has written in the meantime, the transaction fails.
// Revoke then tries again, at most 20 times in all. The leader's clock counts the
// remaining time, as with KeepFor.
//
// Revoke needs the rights READ, CREATE and DELETE. The node that it creates gets the
// ACL of the hold's node, so that the same clients can read it. If keep is positive and
// the servers show digests to administrators only, Revoke also needs the right ADMIN,
// or the same WithACL as the holder's Store.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op, name = "revoke", "zkstore: revoke"
	if err := claims.CheckKey(name, key, false); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(name, hold, keep); err != nil {
		return err
	}
	_, err := inspect(ctx, s, op, func(a *stage) (struct{}, error) {
		for range attempts {
			err := s.revoke(ctx, a, key, hold, keep)
			if !errors.Is(err, errAgain) {
				return struct{}{}, err
			}
		}
		return struct{}{}, fmt.Errorf("%w: %w", store.ErrUnavailable, errAgain)
	})
	switch {
	case err == nil, errors.Is(err, store.ErrLost):
		return err
	case errors.Is(err, zk.ErrNoAuth) && !errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%s: the right READ, CREATE or DELETE is missing: %w: %w", name, store.ErrUnavailable, err)
	}
	return outcome(op, err, false)
}

// revoke tries once, and returns errAgain if the queue or the hold has changed in the
// meantime.
func (s *Store) revoke(ctx context.Context, a *stage, key, hold string, keep time.Duration) error {
	unchanged := func(err error) error {
		if err == nil || errors.Is(err, errAgain) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	now, err := s.moment(ctx)
	if err != nil {
		return unchanged(err)
	}
	dir := s.dir(key)
	l, err := s.list(ctx, dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return unchanged(err)
	}
	nodes := l.revocable(hold)
	if len(nodes) == 0 {
		return inspection.Lost("zkstore: revoke")
	}
	facts, err := s.facts(ctx, dir, nodes)
	if err != nil {
		return unchanged(err)
	}
	var ops []any
	for _, n := range nodes {
		f, there := facts[n.name]
		if !there {
			return errAgain
		}
		if keep > 0 {
			// If the hold was extended after this read, its node has a new version, and
			// the transaction fails.
			keep = max(keep, f.note.left(now.since(f.written)))
		}
		ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + n.name, Version: f.version})
	}
	var k node
	if keep > 0 {
		acl, err := s.aclOf(ctx, dir+"/"+nodes[0].name)
		if errors.Is(err, zk.ErrNoNode) {
			return errAgain
		}
		if err != nil {
			return unchanged(err)
		}
		keep = (keep + time.Millisecond - 1).Truncate(time.Millisecond)
		k = keptNode(nodes[0], 0)
		ops = append(ops, &zk.CreateRequest{Path: dir + "/" + k.prefix(), Data: note{life: keep}.text(), Acl: acl, Flags: zk.FlagSequence})
	}
	if !a.begin() {
		return fmt.Errorf("%w: the caller has left", store.ErrUnavailable)
	}
	answers, _, _, err := s.sess.write(ctx, ops...)
	switch {
	case err == nil && keep > 0:
		path := answers[len(answers)-1].String
		time.AfterFunc(keep, func() { s.remove(path, 0) })
	case unknown(err) && keep > 0:
		time.AfterFunc(keep, func() { s.sweep(dir, k.nonce) })
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion):
		a.over()
		return errAgain
	}
	return err
}

// revocable returns the nodes of the lease whose hold has the given ID, or none if the
// lease only waits.
func (l line) revocable(hold string) []node {
	for _, n := range l.nodes {
		if n.kind != kept && holdID(n.lease) == hold && l.holds(n.lease) {
			return l.of(n.lease)
		}
	}
	return nil
}

// aclOf returns the ACL of a node, for the node that replaces it. If the servers hide
// the digests in the ACL, aclOf compares it with the Store's own ACL. It returns the
// Store's own ACL if the two match, and otherwise fails.
func (s *Store) aclOf(ctx context.Context, path string) ([]zk.ACL, error) {
	var acl []zk.ACL
	_, _, err := s.sess.do(ctx, func() (err error) {
		acl, _, err = s.conn.GetACL(path)
		return err
	})
	if err != nil {
		return nil, err
	}
	masked := func(a zk.ACL) bool { return a.Scheme == "digest" && strings.HasSuffix(a.ID, ":x") }
	if !slices.ContainsFunc(acl, masked) {
		return acl, nil
	}
	same := slices.EqualFunc(acl, s.acl, func(a, b zk.ACL) bool {
		user, _, _ := strings.Cut(b.ID, ":")
		return a == b || masked(a) && a.Perms == b.Perms && b.Scheme == "digest" && a.ID == user+":x"
	})
	if same {
		return s.acl, nil
	}
	return nil, fmt.Errorf("the right ADMIN is missing, by which the ACL of the hold's node can be read: %w: %w", store.ErrUnavailable, zk.ErrNoAuth)
}

// moment is the servers' time together with the time of this process at which it was
// read.
type moment struct {
	clock int64 // in milliseconds; 0 if unknown
	at    time.Time
}

// now returns the servers' time, or slightly less.
func (m moment) now() int64 { return m.clock + time.Since(m.at).Milliseconds() }

// since returns the time since a write, or slightly less. It returns 0 if the servers'
// time is unknown.
func (m moment) since(written int64) time.Duration {
	if m.clock == 0 {
		return 0
	}
	return time.Duration(max(m.now()-written, 0)) * time.Millisecond
}

// moment reads the servers' time from a node that it creates and deletes in one
// transaction. After that the client's server knows all earlier changes. Without the
// rights for these changes, moment sends a sync instead, and the time is unknown.
func (s *Store) moment(ctx context.Context) (moment, error) {
	path := s.root + "/" + aside + "now." + newNonce()
	answers, _, _, err := s.sess.write(ctx,
		&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagPersistent},
		&zk.SetDataRequest{Path: path, Version: -1},
		&zk.DeleteRequest{Path: path, Version: -1})
	switch {
	case err == nil && answers[1].Stat != nil:
		return moment{answers[1].Stat.Mtime, time.Now()}, nil
	case errors.Is(err, zk.ErrNoNode):
		return moment{}, nil // no root exists: no key was ever locked
	case err != nil && !errors.Is(err, zk.ErrNoAuth):
		return moment{}, err
	}
	_, _, err = s.sess.do(ctx, func() error {
		_, err := s.conn.Sync(s.root)
		return err
	})
	return moment{}, err
}

// fact has the parsed data of a node, the times of its creation and of its last write,
// and its version.
type fact struct {
	note             note
	created, written int64 // in the servers' milliseconds
	version          int32
}

// facts reads the data of nodes. A deleted node has no entry in the result.
func (s *Store) facts(ctx context.Context, dir string, nodes []node) (map[string]fact, error) {
	var mu sync.Mutex
	facts := make(map[string]fact, len(nodes))
	err := each(nodes, func(n node) error {
		text, stat, err := s.read(ctx, dir+"/"+n.name)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			facts[n.name] = fact{parseNote(text), stat.Ctime, stat.Mtime, stat.Version}
		}
		return err
	})
	return facts, err
}

func (s *Store) read(ctx context.Context, path string) (text []byte, stat *zk.Stat, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	_, _, err = s.sess.do(ctx, func() (err error) {
		text, stat, err = s.conn.Get(path)
		return err
	})
	return text, stat, err
}

// each calls f for the elements of a slice, at most width at a time. After an error it
// calls f for no further element. It returns the first error.
func each[E any](some []E, f func(E) error) error {
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for range min(width, len(some)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(some)) && failed.Load() == 0; i = next.Add(1) - 1 {
				if err := f(some[i]); err != nil {
					failed.Add(1)
					once.Do(func() { first = err })
				}
			}
		})
	}
	wg.Wait()
	return first
}

func (s *Store) show(ctx context.Context, key string, now moment) (store.State, error) {
	dir := s.dir(key)
	l, err := s.list(ctx, dir)
	if errors.Is(err, zk.ErrNoNode) || err == nil && len(l.nodes) == 0 {
		return store.State{Key: key}, nil
	}
	if err != nil {
		return store.State{}, err
	}
	facts, err := s.facts(ctx, dir, l.nodes)
	return l.state(key, facts, now), err
}

// showAll reads the keys whose nodes have these names, and returns the states of the
// keys with live entries.
func (s *Store) showAll(ctx context.Context, names []string, now moment) (page []store.State, err error) {
	for some := range slices.Chunk(names, step) {
		states := make([]store.State, len(some))
		index := make([]int, len(some))
		for i := range index {
			index[i] = i
		}
		err := each(index, func(i int) (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if key, ok := unescape(some[i]); ok {
				states[i], err = s.show(ctx, key, now)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, state := range states {
			if len(state.Holds) > 0 || len(state.Waiters) > 0 {
				page = append(page, state)
			}
		}
		if err := clock.Sleep(ctx, rest); err != nil {
			return nil, err
		}
	}
	return page, nil
}

func (l line) state(key string, facts map[string]fact, now moment) store.State {
	state := store.State{Key: key}
	type place struct {
		store.Hold
		held bool
	}
	var places []*place
	known := make(map[string]*place) // by lease, which has a node for each session that keeps it
	for _, n := range l.nodes {
		f, there := facts[n.name]
		if !there {
			continue
		}
		since := now.since(f.written)
		if n.kind == kept {
			if left := f.note.left(since); left > 0 {
				state.Holds = append(state.Holds, store.Hold{Weight: n.weight, Left: left})
			}
			continue
		}
		p := known[n.lease]
		if p == nil {
			p = &place{Hold: store.Hold{ID: holdID(n.lease), Process: n.process(), Weight: n.weight, Fair: true}, held: l.holds(n.lease)}
			known[n.lease] = p
			places = append(places, p)
		}
		switch {
		case !p.held:
			p.Age = max(p.Age, now.since(f.created))
			continue
		case f.note.held && now.clock > 0:
			p.Age = max(p.Age, since+f.note.age)
		case !f.note.waits:
			p.Age = max(p.Age, now.since(f.created))
		}
		p.Left = max(p.Left, f.note.left(since))
	}
	for _, p := range places {
		if p.held {
			p.Fair = false
			state.Holds = append(state.Holds, p.Hold)
		} else {
			state.Waiters = append(state.Waiters, p.Hold)
		}
	}
	return state
}

// names returns the names of all keys' nodes, sorted. It reads the names for the first
// page, or if the stored names are older than a minute. So a key that exists from the
// first page to the last is on one of the pages.
func (s *Store) names(ctx context.Context, begin bool) ([]string, error) {
	s.mu.Lock()
	names := s.listed
	s.mu.Unlock()
	if names != nil && !begin {
		return *names, nil
	}
	var children []string
	_, _, err := s.sess.do(ctx, func() (err error) {
		children, _, err = s.conn.Children(s.root)
		return err
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	children = slices.DeleteFunc(children, func(name string) bool {
		_, ok := unescape(name)
		return !ok
	})
	slices.Sort(children)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = &children
	time.AfterFunc(listing, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.listed == &children {
			s.listed = nil
		}
	})
	return children, nil
}

// inspect runs f like detached. While the servers are known to be down, it fails and
// does not run f.
func inspect[R any](ctx context.Context, s *Store, op string, f func(a *stage) (R, error)) (r R, err error) {
	if err := s.sess.gate.Enter(ctx); err != nil {
		return r, unsent(op, err)
	}
	return detached(ctx, s, op, f)
}

// readable returns the caller's error for a failed call that only reads.
func readable(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkstore: %s: the right READ is missing: %w: %w", op, store.ErrUnavailable, err)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("zkstore: %s: %w", op, err)
	}
	return unsent(op, err)
}
