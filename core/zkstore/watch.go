package zkstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

type sub struct{ wake chan struct{} }

// spot is a watched event. It is the deletion of a node or, if data is set, also a
// change of the node's data.
type spot struct {
	path string
	data bool
}

// spy waits for the one event of a client's watch, on behalf of all waiters for that
// event. A spy stays when no waiter is left, because the client cannot cancel a watch.
// While the node exists, the next waiter reuses the spy.
type spy struct {
	ids map[string]struct{} // the waiters, by key and lease
}

// Watch returns a channel that receives when the waiting claim c should be sent again.
// It receives when a node that c waits for is deleted, or when the waiter just ahead is
// admitted. Watch itself sends nothing, because Acquire has set the watch of a waiting
// claim.
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

// watch wakes the waiter with this id when the event of a spot happens. It fails with
// zk.ErrNoNode if the node does not exist.
func (s *Store) watch(ctx context.Context, at spot, id string) error {
	if s.listen(at, id, nil) {
		return nil
	}
	var events <-chan zk.Event
	_, _, err := s.sess.do(ctx, func() (err error) {
		if at.data {
			_, _, events, err = s.conn.GetW(at.path)
		} else {
			// The children of a node without children change only when the node is
			// deleted. Its data changes with every extension.
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

// listen adds a waiter to the spy of a spot. If there is no spy, listen starts a spy on
// events, or returns false if events is nil.
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

// unwatch removes a waiter from the spies of these spots, except the spots for which it
// waits again. The caller holds the mutex.
func (s *Store) unwatch(id string, spots []spot) {
	for _, at := range spots {
		if p := s.spies[at]; p != nil && !slices.Contains(s.spots[id], at) {
			delete(p.ids, id)
		}
	}
}

// unwatchAll calls unwatch for all spots of a waiter. The caller holds the mutex.
func (s *Store) unwatchAll(id string) {
	spots := s.spots[id]
	delete(s.spots, id)
	s.unwatch(id, spots)
}
