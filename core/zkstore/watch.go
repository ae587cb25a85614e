package zkstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// sub is a waiter that is to be woken.
type sub struct{ wake chan struct{} }

// spot is a watched event: a node goes, or its data changes too.
type spot struct {
	path string
	data bool
}

// spy waits for the one event of a watch, on behalf of all waiters that wait for it. It
// stays when no waiter is left, because the client cannot cancel a watch. A waiter that
// comes next uses it, as long as the node is there.
type spy struct {
	ids map[string]struct{} // key and lease of these waiters
}

// Watch returns a channel that receives when a node for which the waiting claim c waits
// has gone. It sends nothing: Acquire has set the watch of a claim that waits.
func (s *Store) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	if err := usable("watch", c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, unsent("watch", context.Cause(ctx))
	}
	id := c.Key + "\x00" + c.Lease
	w := &sub{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("zkstore: watch: %w", errClosed)
	}
	if s.subs[id] == nil {
		s.subs[id] = make(map[*sub]struct{})
	}
	s.subs[id][w] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.subs[id], w); len(s.subs[id]) == 0 {
			delete(s.subs, id)
		}
	})
	return w.wake, nil
}

// watch makes the waiter of this id woken when the event of a spot happens. It fails
// with zk.ErrNoNode if there is no node.
func (s *Store) watch(ctx context.Context, at spot, id string) error {
	if s.listen(at, id, nil) {
		return nil
	}
	var events <-chan zk.Event
	_, _, err := s.sess.do(ctx, func() (err error) {
		if at.data {
			_, _, events, err = s.conn.GetW(at.path)
		} else {
			// The children of a node without children change only when the node goes.
			// Its data is written with every extension.
			_, _, events, err = s.conn.ChildrenW(at.path)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.listen(at, id, events)
	return nil
}

// listen adds a waiter to a spy. If there is none, it starts one on events, if they are
// given, and returns false otherwise.
func (s *Store) listen(at spot, id string, events <-chan zk.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.spies[at]
	switch {
	case p == nil && events == nil:
		return false
	case p == nil && !s.closed:
		p = &spy{ids: make(map[string]struct{})}
		s.spies[at] = p
		s.wg.Go(func() {
			select {
			case <-events:
				s.wake(at, p)
			case <-s.ctx.Done():
			}
		})
	case p == nil:
		return true
	}
	p.ids[id] = struct{}{}
	s.spots[id] = append(s.spots[id], at)
	return true
}

// wake wakes all the waiters of a spy.
func (s *Store) wake(at spot, p *spy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spies[at] == p {
		delete(s.spies, at)
	}
	for id := range p.ids {
		for w := range s.subs[id] {
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

// unwatch ends a waiter's wait at these spots, except those where it waits again, under
// the mutex.
func (s *Store) unwatch(id string, spots []spot) {
	for _, at := range spots {
		if p := s.spies[at]; p != nil && !slices.Contains(s.spots[id], at) {
			delete(p.ids, id)
		}
	}
}

// unwatchAll calls unwatch for all spots of a waiter.
func (s *Store) unwatchAll(id string) {
	spots := s.spots[id]
	delete(s.spots, id)
	s.unwatch(id, spots)
}
