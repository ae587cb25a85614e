package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// remove deletes a node in the background. It retries until the node is gone, the server
// refuses the deletion (zk.ErrNoAuth), the client has another session than the node, or
// the Store is closed. Session 0 stands for a node without a session.
func (s *Store) remove(path string, session int64) {
	s.background(func() {
		for pause := 10 * time.Millisecond; s.ctx.Err() == nil; pause = min(2*pause, time.Second) {
			if id := s.conn.SessionID(); session != 0 && id != 0 && id != session {
				return
			}
			_, _, err := s.sess.do(s.ctx, func() error { return s.conn.Delete(path, -1) })
			if final(err) {
				return
			}
			_ = clock.Sleep(s.ctx, pause)
		}
	})
}

// final reports whether a removal need not be tried again after err.
func final(err error) bool {
	return err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth)
}

// sweep removes the node that an attempt may have created, and retries until the
// removal is certain, the server refuses it (zk.ErrNoAuth), or the Store is closed. It
// finds the node by its nonce, which only that node has.
// CreateProtectedEphemeralSequential of the client library is not enough. After a lost
// reply it looks for the node only once, and perhaps on a server that has not seen the
// node yet.
func (s *Store) sweep(dir, nonce string) {
	s.background(func() {
		for pause := 10 * time.Millisecond; s.ctx.Err() == nil; pause = min(2*pause, time.Second) {
			if _, err := s.sess.ready(s.ctx); err != nil || s.swept(dir, nonce) {
				return
			}
			_ = clock.Sleep(s.ctx, pause)
		}
	})
}

// swept reports whether the search is complete, because the node is gone or the server
// refuses it (zk.ErrNoAuth).
func (s *Store) swept(dir, nonce string) bool {
	// The connection on which the attempt was sent is closed. The leader now refuses
	// requests that arrive on it, because the session has moved. But the client's
	// present server may not have seen earlier requests yet. Sync makes it catch up with
	// the leader.
	if _, err := s.conn.Sync(dir); err != nil {
		return final(err)
	}
	children, _, err := s.conn.Children(dir)
	if err != nil {
		return final(err)
	}
	for _, name := range children {
		if n, ok := parse(name); ok && n.nonce == nonce {
			return final(s.conn.Delete(dir+"/"+name, -1))
		}
	}
	return true
}

// ensure creates the node of a key as a container, which the servers remove when it is
// empty. It also creates the missing nodes of the root.
func (s *Store) ensure(ctx context.Context, dir string) error {
	for {
		_, _, err := s.sess.do(ctx, func() error {
			_, err := s.conn.CreateContainer(dir, nil, zk.FlagContainer, s.acl)
			return err
		})
		if err == nil || errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		for i := 1; i <= len(s.root); i++ {
			if i < len(s.root) && s.root[i] != '/' {
				continue
			}
			_, _, err := s.sess.do(ctx, func() error {
				_, err := s.conn.Create(s.root[:i], nil, zk.FlagPersistent, s.acl)
				return err
			})
			// A client that may not create this node gets ErrNoAuth even if the node
			// exists.
			if err != nil && !errors.Is(err, zk.ErrNodeExists) && !errors.Is(err, zk.ErrNoAuth) {
				return err
			}
			if errors.Is(err, zk.ErrNoAuth) && i == len(s.root) {
				return err
			}
		}
	}
}
