package zkstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// errAgain is returned when the queue has changed after the read.
var errAgain = errors.New("the queue changes faster than it can be read")

// attempts limits how often an operation reads a queue that changes.
const attempts = 20

// Acquire asks once whether c is admitted. If the queue changes while Acquire reads it,
// Acquire reads the queue again, at most 20 times. For a free key whose node exists and
// has no children, it sends one request, which creates the claim's node. The response
// shows whether the key's node had no other child at that moment. Claims with Via, and
// claims whose MinToken is higher than the token, take more requests.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := usable("acquire", c); err != nil {
		return store.Grant{}, err
	}
	if err := s.sess.gate.Enter(ctx); err != nil {
		return store.Grant{}, unsent("acquire", err)
	}
	sent := time.Now()
	return run(ctx, s, "acquire", c, func(o *operation) (store.Grant, error) {
		g, err := s.acquire(o, c, sent)
		if err != nil && o.made && !errors.Is(err, store.ErrBusy) {
			// A failed acquire must leave no node.
			if h := s.live(o.entry); h != nil {
				s.forget(h)
				s.remove(h.path, h.session)
			}
		}
		return g, err
	})
}

func lost(op string) error { return fmt.Errorf("zkstore: %s: %w", op, store.ErrLost) }

func (s *Store) acquire(o *operation, c store.Claim, sent time.Time) (store.Grant, error) {
	for range attempts {
		s.mu.Lock()
		tomb := time.Now().Before(o.entry.refused)
		s.mu.Unlock()
		if tomb {
			return store.Grant{}, lost("acquire")
		}
		h := s.live(o.entry)
		var err error
		switch {
		case h == nil:
			err = s.enter(o, c)
		case h.admitted:
			err = s.renew(o.ctx, h, c)
		default:
			err = s.ask(o, c, h)
		}
		if err == nil {
			if h = s.live(o.entry); h == nil || !h.admitted { // join may have replaced the node
				continue
			}
			if err = s.raise(o.ctx, h, c); err == nil {
				return s.grant(o, h, c, sent)
			}
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrInvalid) ||
			errors.Is(err, store.ErrUnsupported) {
			return store.Grant{}, err
		}
		return store.Grant{}, outcome("acquire", err, o.made)
	}
	if h := s.live(o.entry); h != nil && !h.admitted && !c.Wait {
		_ = s.withdraw(o, h)
	}
	return store.Grant{}, &store.BusyError{Key: c.Key, RetryAfter: time.Millisecond}
}

func (s *Store) grant(o *operation, h *hold, c store.Claim, sent time.Time) (store.Grant, error) {
	valid := s.sess.valid(h.session, sent)
	if !o.proved.IsZero() {
		valid = min(valid, o.proved.Add(c.TTL).Sub(sent))
	}
	if valid <= 0 {
		return store.Grant{}, errors.New("zkstore: acquire: the session may have expired")
	}
	g := store.Grant{Owner: c.Owner, Valid: min(valid, c.TTL)}
	if c.Via != "" && digest("owner", c.Via) == h.node.owner {
		g.Owner = c.Via
	}
	if c.Weight == store.All {
		g.Token = token(h.zxid, h.plus)
	}
	return g, nil
}

// token returns the first token of a node's grant, or 0 if not all tokens of the grant
// are below 2^53. plus is the addition to the key's tokens. The upper half of a zxid
// counts the elections of a leader, and the lower half the transactions since the last
// election. So the 32768th election is the first without tokens. Both halves are
// needed. Consecutive transactions may each create a node of one key, and the lower
// half starts again with each election.
func token(zxid, plus int64) uint64 {
	if zxid >= 1<<53/store.TokenStep || zxid*store.TokenStep+plus > 1<<53-store.TokenStep {
		return 0
	}
	return uint64(zxid*store.TokenStep + plus)
}

// enter creates a node for a claim that has no node. It returns nil if the claim is
// admitted.
func (s *Store) enter(o *operation, c store.Claim) error {
	owner := digest("owner", c.Owner)
	if c.Via != "" {
		owner = digest("owner", c.Via)
	}
	// An owner may hold the whole key in our session. A further hold of that owner does
	// not need the queue. It is granted if the first hold still exists when the new
	// node is created.
	if m := s.holdOf(c.Key, owner, c.Lease); m != nil && m.node.weight >= c.Weight {
		if err := s.join(o, c, m.node, m.zxid, nil); !errors.Is(err, errAgain) {
			return err
		}
	}
	if c.Via != "" {
		l, err := s.list(o.ctx, s.dir(c.Key))
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if m, ok := l.mate(owner, leaseDigest(c.Lease)); ok {
			if m.weight < c.Weight {
				return tooHeavy()
			}
			return s.join(o, c, m, 0, nil)
		}
	}
	n := node{
		kind: plain, weight: c.Weight, limit: c.Limit,
		owner: digest("owner", c.Owner), lease: leaseDigest(c.Lease), nonce: nonceOf(c.Lease),
	}
	h, stat, err := s.create(o, c, n, nil)
	if err != nil {
		return err
	}
	if stat.NumChildren == 1 {
		s.admit(h, c, 0)
		return nil
	}
	return s.ask(o, c, h)
}

func tooHeavy() error {
	return fmt.Errorf("zkstore: acquire: heavier than the hold that it joins: %w", store.ErrInvalid)
}

// holdOf returns a hold of the whole key that the owner has in our session, or nil. It
// ignores the hold of the given lease.
func (s *Store) holdOf(key, owner, lease string) *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.owners[ownerID(key, owner)] {
		if h := e.hold; h != nil && h.node.weight == store.All && e.id != key+"\x00"+lease &&
			time.Now().Before(h.until) && s.sess.current(h.session) {
			return h
		}
	}
	return nil
}

// life returns the lifetime of a claim's new node. Sending the claim again renews the
// node's lifetime.
func life(c store.Claim) time.Duration {
	if c.Wait {
		return min(c.TTL, store.WaiterLife)
	}
	return c.TTL
}

// create creates n in one transaction, after the requests in first. The transaction
// ends with a write to the key's node, whose response contains the number of children
// and the zxid of the transaction.
func (s *Store) create(o *operation, c store.Claim, n node, first []any) (*hold, zk.Stat, error) {
	dir := s.dir(c.Key)
	ops := append(first,
		&zk.CreateRequest{Path: dir + "/" + n.prefix(), Data: noteOf(c).text(), Acl: s.acl, Flags: zk.FlagEphemeralSequential},
		&zk.SetDataRequest{Path: dir, Version: -1})
	for {
		answers, stat, id, err := s.sess.write(o.ctx, ops...)
		if errors.Is(err, zk.ErrNoNode) {
			if len(first) > 0 {
				return nil, stat, errAgain
			}
			if err := s.ensure(o.ctx, dir); err != nil {
				return nil, stat, err
			}
			continue
		}
		if err != nil {
			if unknown(err) {
				o.made = true
				s.sweep(dir, n.nonce)
			}
			return nil, stat, err
		}
		o.made = true
		path := answers[len(first)].String
		full, ok := parse(path[len(dir)+1:])
		if !ok {
			return nil, stat, fmt.Errorf("the server made a node %.200q", path)
		}
		h := &hold{
			entry: o.entry, dir: dir, path: path, session: id, node: full, zxid: stat.Mzxid,
			shared: full.kind == copied, ttl: c.TTL,
		}
		if full.kind != plain {
			h.zxid = full.zxid
		}
		s.keep(h, life(c))
		return h, stat, nil
	}
}

func (s *Store) list(ctx context.Context, dir string) (line, error) {
	var children []string
	_, _, err := s.sess.do(ctx, func() (err error) {
		children, _, err = s.conn.Children(dir)
		return err
	})
	if err != nil {
		return line{}, err
	}
	return newLine(children), nil
}

// ask reads the queue and checks whether the claim of an existing node is admitted. If
// the claim is admitted, ask returns nil.
func (s *Store) ask(o *operation, c store.Claim, h *hold) error {
	o.proved = time.Time{}
	proof := s.sess.confirmed(h.session)
	l, err := s.list(o.ctx, h.dir)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	own, ok := l.find(h.node.name)
	if l.tombs[h.node.lease] {
		_ = s.withdraw(o, h)
		return lost("acquire")
	}
	if !ok {
		s.forget(h)
		o.made = false
		return errAgain
	}
	if own.kind == plain {
		if t, ok := l.twin(own); ok {
			return s.join(o, c, t, 0, h)
		}
		for _, name := range []string{c.Via, c.Owner} {
			if name == "" {
				continue
			}
			m, ok := l.mate(digest("owner", name), own.lease)
			switch {
			case !ok || m.name == own.name:
			case m.weight < c.Weight:
				_ = s.withdraw(o, h)
				return tooHeavy()
			case before(m.pos(), own.pos()):
				return s.join(o, c, m, 0, h)
			}
		}
	}
	if !l.admits(own) && !l.holds(own.lease) {
		return s.wait(o, c, h, l)
	}
	// The node existed when the queue was read. The server that was read may be behind
	// the leader, but not behind the last write that it has confirmed to us. After that
	// write the node can have been deleted for two reasons only. The first is the end
	// of the session, which is impossible if the write was a short time ago. The second
	// is a revoke, which keeps the key taken for the claim's TTL. So the grant is valid
	// for its TTL, counted from that write. A claim that is lighter than All leaves
	// room for others. So for such a claim, ask writes to the claim's node. The write
	// notifies the waiters behind the node.
	switch {
	case o.made:
	case c.Weight != store.All || c.TTL > h.ttl || !s.sess.fresh(h.session, proof, c.TTL):
		if err := s.touch(o.ctx, h, c.TTL); err != nil {
			return err
		}
	default:
		o.proved = proof
	}
	s.admit(h, c, l.plus)
	return nil
}

func (s *Store) admit(h *hold, c store.Claim, plus int64) {
	d := s.span(h, c.TTL)
	s.mu.Lock()
	h.admitted, h.plus, h.granted = true, plus, time.Now()
	h.until = time.Now().Add(d)
	h.timer.Reset(d)
	id := ownerID(h.entry.key, h.node.owner)
	if s.owners[id] == nil {
		s.owners[id] = make(map[*entry]struct{})
	}
	s.owners[id][h.entry] = struct{}{}
	s.unwatchAll(h.entry.id)
	s.mu.Unlock()
}

// withdraw deletes a node, if the nodes in blockers still exist. Otherwise it returns
// errAgain, because the node may now be the first of the queue. Without this rule, many
// concurrent claims could all fail. Each could find nodes ahead that are about to be
// withdrawn.
func (s *Store) withdraw(o *operation, h *hold, blockers ...node) error {
	var ops []any
	for _, m := range blockers {
		ops = append(ops, &zk.CheckVersionRequest{Path: h.dir + "/" + m.name, Version: -1})
	}
	_, _, _, err := s.sess.write(o.ctx, append(ops, &zk.DeleteRequest{Path: h.path, Version: -1})...)
	if len(blockers) > 0 && errors.Is(err, zk.ErrNoNode) {
		return errAgain
	}
	s.forget(h)
	o.made = false
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		s.remove(h.path, h.session)
	}
	return nil
}
