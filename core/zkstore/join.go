package zkstore

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// join creates a node at the place of m, if m is still there when it is created. In the
// same step it deletes the claim's own node, which came later in the queue.
//
// If m is of another lease, its owner holds and enters again. If it is of the same
// lease, another session keeps that lease, and from now on ours does too.
//
// zxid is the transaction from which the tokens at that place follow, or 0 if it has to
// be asked for. join returns nil if the claim is held.
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
			// The creator of m notices by its version that it is not alone.
			ops = []any{&zk.SetDataRequest{Path: path, Data: text, Version: -1}}
		}
	}
	if own != nil {
		ops = append(ops, &zk.DeleteRequest{Path: own.path, Version: -1})
	}
	if own != nil {
		s.forget(own) // it may be gone by the time of an answer
	}
	h, stat, err := s.create(o, c, n, ops)
	if err != nil {
		if own != nil {
			s.remove(own.path, own.session)
		}
		return err
	}
	if m.weight == store.All && !same && stat.NumChildren == 2 {
		// There are only that hold and this one: no tombstone, no addition to the
		// tokens, and no node of a revoke. With more holds of the owner the queue is
		// read: it is not known here which of them are still there.
		s.admit(h, c, 0)
		return nil
	}
	return s.ask(o, c, h)
}
