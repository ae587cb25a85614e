package zkstore

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// Release releases c. If no other Store has written to the node of c's hold, one
// request deletes the node.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if err := usable("release", c); err != nil {
		return err
	}
	_, err := run(ctx, s, "release", c, func(o *operation) (struct{}, error) {
		return struct{}{}, s.release(o, c)
	})
	return err
}

func (s *Store) release(o *operation, c store.Claim) error {
	h := s.live(o.entry)
	if h != nil && !h.shared {
		s.mu.Lock()
		held, version := h.admitted, h.version
		s.mu.Unlock()
		var err error
		switch {
		case held && c.Keep > 0:
			err = s.leave(o, c, h.node, h.zxid, &zk.DeleteRequest{Path: h.path, Version: version})
		case held || c.TTL <= 0:
			_, _, err = s.sess.do(o.ctx, func() error { return s.conn.Delete(h.path, version) })
		default:
			_, _, _, err = s.sess.write(o.ctx, &zk.DeleteRequest{Path: h.path, Version: version}, s.tombstone(h))
			if err == nil || unknown(err) {
				s.refuse(o.entry, h.dir, h.node.lease, c.TTL)
			}
		}
		switch {
		case err == nil:
			s.forget(h)
			return nil
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrSessionExpired),
			errors.Is(err, zk.ErrNodeExists):
		default:
			return outcome("release", err, false)
		}
	}
	for range attempts {
		err := s.releaseAny(o, c)
		if errors.Is(err, errAgain) {
			continue
		}
		if h != nil && (err == nil || errors.Is(err, store.ErrLost)) {
			s.forget(h)
		}
		if errors.Is(err, store.ErrLost) {
			return err
		}
		if err != nil {
			return outcome("release", err, true)
		}
		return nil
	}
	return outcome("release", errAgain, true)
}

// releaseAny releases a lease of which other Stores may have nodes too.
func (s *Store) releaseAny(o *operation, c store.Claim) error {
	dir, lease := s.dir(c.Key), leaseDigest(c.Lease)
	// The tombstone is created first. The list below contains all nodes that were
	// created before it, and later attempts find the tombstone.
	if c.TTL > 0 {
		if err := s.plant(o, c, dir, lease); err != nil {
			return err
		}
	}
	l, err := s.list(o.ctx, dir)
	nodes := l.of(lease)
	switch {
	case errors.Is(err, zk.ErrNoNode), err == nil && len(nodes) == 0:
		return lost("release")
	case err != nil:
		return err
	}
	held := l.holds(lease)
	var ops []any
	for _, n := range nodes {
		ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + n.name, Version: -1})
	}
	if held && c.Keep > 0 {
		err = s.leave(o, c, nodes[0], 0, ops...)
	} else {
		_, _, _, err = s.sess.write(o.ctx, ops...)
	}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return errAgain
	case err != nil:
		return err
	}
	if held && c.TTL > 0 {
		// The lease was held, so no attempt to acquire it can be in flight.
		s.mu.Lock()
		o.entry.refused = time.Time{}
		s.mu.Unlock()
		s.remove(dir+"/"+tombName(lease), 0)
	}
	return nil
}

// leave deletes a hold by the requests in first, and creates the node that keeps the key
// taken for a while. That node belongs to no session, because the end of our session
// must not free the key.
func (s *Store) leave(o *operation, c store.Claim, n node, zxid int64, first ...any) error {
	dir := s.dir(c.Key)
	k := keptNode(n, zxid)
	answers, _, _, err := s.sess.write(o.ctx, append(first,
		&zk.CreateRequest{Path: dir + "/" + k.prefix(), Data: note{life: c.Keep}.text(), Acl: s.acl, Flags: zk.FlagSequence},
		&zk.SetDataRequest{Path: dir, Version: -1})...)
	switch {
	case err == nil:
		path := answers[len(first)].String
		time.AfterFunc(c.Keep, func() { s.remove(path, 0) })
	case unknown(err):
		time.AfterFunc(c.Keep, func() { s.sweep(dir, k.nonce) })
	}
	return err
}

// keptNode returns the node that takes the place of a hold. It has no owner.
func keptNode(n node, zxid int64) node {
	return node{
		kind: kept, weight: n.weight, limit: n.limit, owner: "-", lease: n.lease, nonce: newNonce(),
		base: n.pos(), zxid: max(zxid, n.zxid),
	}
}

func (s *Store) tombstone(h *hold) any {
	return &zk.CreateRequest{Path: h.dir + "/" + tombName(h.node.lease), Acl: s.acl, Flags: zk.FlagEphemeral}
}

// plant creates a tombstone, unless it already exists, and refuses the lease.
func (s *Store) plant(o *operation, c store.Claim, dir, lease string) error {
	for {
		_, _, err := s.sess.do(o.ctx, func() error {
			_, err := s.conn.Create(dir+"/"+tombName(lease), nil, zk.FlagEphemeral, s.acl)
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if err := s.ensure(o.ctx, dir); err != nil {
				return err
			}
			continue
		case err != nil && !errors.Is(err, zk.ErrNodeExists) && !unknown(err):
			return err
		}
		s.refuse(o.entry, dir, lease, c.TTL)
		if errors.Is(err, zk.ErrNodeExists) {
			return nil
		}
		return err
	}
}

// refuse refuses a lease for the lifetime of its tombstone, and then deletes the
// tombstone.
func (s *Store) refuse(e *entry, dir, lease string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.refused = time.Now().Add(ttl)
	var end func()
	end = func() {
		s.mu.Lock()
		left := time.Until(e.refused)
		if left > 0 {
			s.mu.Unlock()
			time.AfterFunc(left, end)
			return
		}
		if e.refs == 0 && e.hold == nil && s.entries[e.id] == e {
			delete(s.entries, e.id)
		}
		s.mu.Unlock()
		s.remove(dir+"/"+tombName(lease), 0)
	}
	time.AfterFunc(ttl, end)
}
