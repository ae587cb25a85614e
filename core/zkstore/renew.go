package zkstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// touch writes to a node of ours. A confirmed write proves that the node exists and
// that our session is alive.
func (s *Store) touch(ctx context.Context, h *hold, ttl time.Duration) error {
	s.mu.Lock()
	version := h.version
	if h.shared {
		version = -1
	}
	text := h.note(ttl).text()
	s.mu.Unlock()
	_, stat, _, err := s.sess.write(ctx, &zk.SetDataRequest{Path: h.path, Data: text, Version: version})
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		return s.catchUp(ctx, h)
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired):
		s.forget(h)
		return errAgain
	case err != nil:
		return err
	}
	s.mu.Lock()
	h.version = stat.Version
	s.mu.Unlock()
	return nil
}

// catchUp reads who has written to the node of h. If the lease has no other node, the
// writer was this Store, whose reply was lost, or a session whose node is gone. A
// session that joins the lease writes to the node in the transaction that creates its
// own. So if it joins after the queue was read, the version that was read before is
// wrong, and the next write fails too. catchUp returns errAgain unless a read fails.
func (s *Store) catchUp(ctx context.Context, h *hold) error {
	var stat *zk.Stat
	_, _, err := s.sess.do(ctx, func() (err error) {
		_, stat, err = s.conn.Get(h.path)
		return err
	})
	var l line
	if err == nil {
		l, err = s.list(ctx, h.dir)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.forget(h)
		return errAgain
	case err != nil:
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.version = max(h.version, stat.Version)
	h.shared = slices.ContainsFunc(l.of(h.node.lease), func(n node) bool { return n.name != h.node.name })
	h.plus = max(h.plus, l.plus) // a session that was here may have raised the tokens
	return errAgain
}

// renew extends a hold to the claim's TTL from now.
func (s *Store) renew(ctx context.Context, h *hold, c store.Claim) error {
	if err := s.touch(ctx, h, c.TTL); err != nil {
		return err
	}
	s.prolong(h, c.TTL)
	if h.shared && c.Weight == store.All {
		l, err := s.list(ctx, h.dir)
		if err != nil {
			return err
		}
		h.plus = l.plus
	}
	return nil
}

// raise raises the token of an exclusive hold to at least the claim's MinToken, if this
// is set. It fails with store.ErrUnsupported if the hold has no token below 2^53. The
// addition stays with the key and counts for all later tokens.
func (s *Store) raise(ctx context.Context, h *hold, c store.Claim) error {
	if c.Weight != store.All || c.MinToken == 0 {
		return nil
	}
	switch t := token(h.zxid, h.plus); {
	case t == 0:
		return fmt.Errorf("zkstore: acquire: after so many elections of a leader no token is below 2^53: %w", store.ErrUnsupported)
	case t >= c.MinToken:
		return nil
	}
	plus := int64(c.MinToken) - h.zxid*store.TokenStep
	name := string(surcharge) + "." + strconv.FormatInt(plus, 36)
	_, _, _, err := s.sess.write(ctx, &zk.CheckVersionRequest{Path: h.path, Version: -1},
		&zk.CreateRequest{Path: h.dir + "/" + name, Acl: s.acl, Flags: zk.FlagPersistent},
		&zk.SetDataRequest{Path: h.dir, Version: -1})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.forget(h)
		return errAgain
	case err != nil && !errors.Is(err, zk.ErrNodeExists):
		return err
	}
	h.plus = plus
	// Smaller additions have no effect any more.
	if l, err := s.list(ctx, h.dir); err == nil {
		for _, m := range l.markers {
			if m != name && l.plus == plus {
				s.remove(h.dir+"/"+m, 0)
			}
		}
	}
	return nil
}
