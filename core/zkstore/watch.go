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

// spot is what is watched: that a node goes, or also that its data changes.
type spot struct {
	path string
	data bool
}

// spy waits for the one event of a watch, on behalf of all that want to know. It
// stays when there is none left: the client cannot take a watch back, so a waiter that
// comes next has this one, as long as the node is there.
type spy struct {
	ids map[string]struct{} // key and lease of those
}

// Watch returns a channel that receives when what the waiting claim c waits for
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

// watch has the waiter of this id woken when something happens at a spot. It
// fails with zk.ErrNoNode if there is nothing there.
func (s *Store) watch(ctx context.Context, at spot, id string) error {
	if s.listen(at, id, nil) {
		return nil
	}
	var events <-chan zk.Event
	_, _, err := s.sess.do(ctx, func() (err error) {
		if at.data {
			_, _, events, err = s.conn.GetW(at.path)
		} else {
			// The children of a node that has none change only when it goes; its
			// data is written with every extension.
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

// listen adds a waiter to a spy. If there is none, it starts one on events, if
// they are given, and else returns false.
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

// unwatch ends what a waiter waits for at these spots, but for those where it
// waits again, under the mutex.
func (s *Store) unwatch(id string, spots []spot) {
	for _, at := range spots {
		if p := s.spies[at]; p != nil && !slices.Contains(s.spots[id], at) {
			delete(p.ids, id)
		}
	}
}

// unwatchAll is unwatch for all that a waiter waits for.
func (s *Store) unwatchAll(id string) {
	spots := s.spots[id]
	delete(s.spots, id)
	s.unwatch(id, spots)
}
