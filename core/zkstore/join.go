package zkstore

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// join creates a node at the place of m, if m still exists at that moment. In the same
// transaction it deletes own, the claim's own node further back in the queue, unless own
// is nil.
//
// If m is of another lease, the owner of m already holds and now gets a further hold.
// If m is of the same lease, another session keeps that lease. From now on our session
// keeps the lease too.
//
// zxid is the transaction from which the tokens at that place follow, or 0 if join has
// to read it. join returns nil if the claim is admitted.
func (s *Store) join(o *operation, c store.Claim, m node, zxid int64, own *hold) error {
	dir := s.dir(c.Key)
	path := dir + "/" + m.name
	n := node{
		kind: reentry, weight: c.Weight, limit: c.Limit, owner: m.owner,
		lease: leaseDigest(c.Lease), nonce: nonceOf(c.Lease), base: m.pos(), zxid: m.zxid,
	}
	same := m.lease == n.lease
	if same && m.kind != reentry {
		n.kind = copied
	}
	if n.zxid == 0 {
		n.zxid = zxid
	}
	ops := []any{&zk.CheckVersionRequest{Path: path, Version: -1}}
	if same || n.zxid == 0 {
		var text []byte
		var stat *zk.Stat
		_, _, err := s.sess.do(o.ctx, func() (err error) {
			text, stat, err = s.conn.Get(path)
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return errAgain
		case err != nil:
			return err
		}
		if n.zxid == 0 {
			n.zxid = stat.Czxid
		}
		if same {
			// The creator of m notices by the new version that another session keeps
			// the lease.
			ops = []any{&zk.SetDataRequest{Path: path, Data: text, Version: -1}}
		}
	}
	if own != nil {
		ops = append(ops, &zk.DeleteRequest{Path: own.path, Version: -1})
	}
	if own != nil {
		s.forget(own) // the transaction may delete it even if the reply is lost
	}
	h, stat, err := s.create(o, c, n, ops)
	if err != nil {
		if own != nil {
			s.remove(own.path, own.session)
		}
		return err
	}
	if m.weight == store.All && !same && stat.NumChildren == 2 {
		// Only m and this node exist: no tombstone, no addition to the tokens, and no
		// node of a revoke. With more holds of the owner, ask reads the queue, because
		// join does not know which of the holds still exist.
		s.admit(h, c, 0)
		return nil
	}
	return s.ask(o, c, h)
}
