package zkstore

import (
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
)

// join creates a node at the place of m, if m is still there when it is created,
// and deletes the claim's own, which came later in the queue, in the same step.
//
// If m is of another lease, its owner holds and enters again. If it is of the
// same lease, another session keeps it, and from now on ours does too.
//
// zxid is what the tokens at that place follow from, 0 if it has to be asked
// for. join returns nil if the claim is held.
func (s *Store) join(o *operation, c core.Claim, m node, zxid int64, own *hold) error {
	dir := s.dir(c.Key)
	path := dir + "/" + m.name
	n := node{
		kind: reentry, weight: c.Weight, limit: c.Limit, owner: m.owner,
		lease: digest("lease", c.Lease), nonce: newNonce(), base: m.pos(), zxid: m.zxid,
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
			// Who created m notices by its version that it is not alone.
			ops = []any{&zk.SetDataRequest{Path: path, Data: text, Version: -1}}
		}
	}
	if own != nil {
		ops = append(ops, &zk.DeleteRequest{Path: own.path, Version: -1})
	}
	if own != nil {
		s.forget(own) // by the time of an answer it may be gone
	}
	h, stat, err := s.create(o, c, n, ops)
	if err != nil {
		if own != nil {
			s.remove(own.path, own.session)
		}
		return err
	}
	if m.weight == core.All && !same && int(stat.NumChildren) == s.holders(c.Key, m.owner)+1 {
		// There are only the holds of that owner, all known here: no tombstone,
		// and nothing that is added to the tokens.
		s.admit(h, c, 0)
		return nil
	}
	return s.ask(o, c, h)
}

// holders is how many holds an owner has in our session.
func (s *Store) holders(key, owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.owners[ownerID(key, owner)])
}
