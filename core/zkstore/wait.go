package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

const (
	// askAgain is the maximum time after which a waiter asks again. Its watches
	// normally report a change earlier.
	askAgain = time.Second
	// looks limits the number of holders whose remaining time is read.
	looks = 8
)

// wait keeps h in the queue and watches the nodes for which h waits. If the claim does
// not wait, or h is a further hold, wait deletes h instead. If it finds a kept node
// whose time has passed, it deletes that node. It returns a *store.BusyError, errAgain
// if the queue has changed, or the error of a request.
func (s *Store) wait(o *operation, c store.Claim, h *hold, l line) error {
	busy := &store.BusyError{Key: c.Key, RetryAfter: askAgain}
	ahead := l.ahead(h.node)
	if h.node.kind == reentry {
		ahead = l.nodes // any of them may keep the further hold out
	}
	for _, m := range ahead {
		if m.kind != kept {
			continue
		}
		left, err := s.left(o.ctx, h.dir, m)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return errAgain
		case err != nil:
			return err
		case left <= 0:
			// The process that should have deleted the node has probably exited.
			if err := s.conn.Delete(h.dir+"/"+m.name, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			return errAgain
		}
		busy.RetryAfter = min(busy.RetryAfter, left)
	}
	nodes, data := l.watched(h.node)
	if !c.Wait || h.node.kind == reentry {
		busy.RetryAfter = s.hint(o.ctx, h, ahead)
		if h.node.kind == reentry {
			nodes = nil
		}
		if err := s.withdraw(o, h, nodes...); err != nil {
			return err
		}
		return busy
	}
	busy.Waiting = l.waiting()
	s.mu.Lock()
	stale := s.spots[h.entry.id]
	delete(s.spots, h.entry.id)
	s.mu.Unlock()
	for _, m := range nodes {
		if err := s.watch(o.ctx, spot{h.dir + "/" + m.name, data}, h.entry.id); errors.Is(err, zk.ErrNoNode) {
			return errAgain
		} else if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch(h.entry.id, stale)
	h.until = time.Now().Add(life(c))
	h.timer.Reset(life(c))
	return busy
}

// left returns the remaining lifetime of a node by the servers' clock, if nothing
// extends the node.
func (s *Store) left(ctx context.Context, dir string, m node) (time.Duration, error) {
	var text []byte
	var stat *zk.Stat
	_, _, err := s.sess.do(ctx, func() (err error) {
		text, stat, err = s.conn.Get(dir + "/" + m.name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return time.Duration(stat.Mtime-s.sess.clock())*time.Millisecond + parseNote(text).life, nil
}

// hint returns the shortest remaining lifetime among the first eight nodes ahead, and at
// least 1 ms.
func (s *Store) hint(ctx context.Context, h *hold, ahead []node) time.Duration {
	var best time.Duration
	for i, m := range ahead {
		if i == looks || m.name == h.node.name {
			break
		}
		if d, err := s.left(ctx, h.dir, m); err == nil && (best == 0 || d < best) {
			best = max(d, time.Millisecond)
		}
	}
	if best == 0 {
		return 10 * time.Millisecond // the nodes ahead were deleted in the meantime
	}
	return best
}
