package zkstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// batch is the maximum number of holds in one request. A request with 256 holds is much
// smaller than a megabyte, which servers accept by default.
const batch = 256

// Extend makes each claim last for its TTL from now. It writes to the nodes of up to
// 256 holds in one request. The leader's confirmation proves that the nodes exist and
// the session is alive. If one of the nodes is missing, or was changed by another Store
// or by a write whose reply was lost, Extend extends each hold of that request
// separately. It also extends separately a hold that this Store does not know, and a
// hold of which other sessions may have nodes.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	sent := time.Now()
	answers := make([]store.Extension, len(claims))
	var rest []int
	holds := make(map[*hold][]int)
	var order []*hold
	s.mu.Lock()
	for i, c := range claims {
		if answers[i].Err = usable("extend", c); answers[i].Err != nil {
			continue
		}
		e := s.entries[c.Key+"\x00"+c.Lease]
		if e == nil || e.hold == nil || !e.hold.admitted || e.hold.shared || !sent.Before(e.hold.until) ||
			!s.sess.current(e.hold.session) {
			rest = append(rest, i)
			continue
		}
		if holds[e.hold] == nil {
			order = append(order, e.hold)
		}
		holds[e.hold] = append(holds[e.hold], i)
	}
	s.mu.Unlock()
	for len(order) > 0 {
		some := order[:min(batch, len(order))]
		order = order[len(some):]
		errs := s.extendAll(ctx, claims, some, holds)
		for k, h := range some {
			for _, i := range holds[h] {
				switch {
				case errors.Is(errs[k], errAgain):
					rest = append(rest, i)
				case errs[k] != nil:
					answers[i].Err = errs[k]
				default:
					answers[i] = s.extension(h.session, sent, claims[i].TTL)
				}
			}
		}
	}
	var wg sync.WaitGroup
	width := make(chan struct{}, 16)
	for _, i := range rest {
		width <- struct{}{}
		wg.Go(func() {
			defer func() { <-width }()
			x, err := run(ctx, s, "extend", claims[i], func(o *operation) (store.Extension, error) {
				return s.extend(o, claims[i], sent)
			})
			if err != nil {
				x = store.Extension{Err: err}
			}
			answers[i] = x
		})
	}
	wg.Wait()
	return answers
}

// extension returns the result for a hold that was confirmed.
func (s *Store) extension(session int64, sent time.Time, ttl time.Duration) store.Extension {
	valid := s.sess.valid(session, sent)
	if valid <= 0 {
		return store.Extension{Err: errors.New("zkstore: extend: the session may have expired")}
	}
	return store.Extension{Valid: min(valid, ttl)}
}

// extendAll writes to the nodes of the given holds in one request. The error for each
// hold is nil, an error for the caller, or errAgain.
func (s *Store) extendAll(ctx context.Context, claims []store.Claim, some []*hold, holds map[*hold][]int) []error {
	ttls := make([]time.Duration, len(some))
	ops := make([]any, len(some))
	s.mu.Lock()
	for k, h := range some {
		for _, i := range holds[h] {
			ttls[k] = max(ttls[k], claims[i].TTL)
		}
		ops[k] = &zk.SetDataRequest{Path: h.path, Data: h.note(ttls[k]).text(), Version: h.version}
	}
	s.mu.Unlock()
	errs, err := detached(ctx, s, "extend", func(at *stage) ([]error, error) {
		if !at.begin() {
			return nil, unsent("extend", context.Cause(ctx))
		}
		answers, _, id, err := s.sess.write(ctx, ops...)
		errs := make([]error, len(some))
		for k, h := range some {
			switch {
			case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrSessionExpired),
				err == nil && id != h.session:
				errs[k] = errAgain
			case err != nil:
				errs[k] = outcome("extend", err, false)
			default:
				errs[k] = s.extended(h, answers[k].Stat.Version, ttls[k])
			}
		}
		return errs, nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(some))
	}
	return errs
}

// extended records a write to a node of ours. It returns errAgain if the hold is gone.
func (s *Store) extended(h *hold, version int32, ttl time.Duration) error {
	s.mu.Lock()
	gone := h.entry.hold != h
	h.version = max(h.version, version)
	s.mu.Unlock()
	if gone {
		return errAgain
	}
	s.prolong(h, ttl)
	return nil
}

// extend extends one hold. If another session created the hold, our session creates a
// copy of its node. Then both sessions keep the lease alive.
func (s *Store) extend(o *operation, c store.Claim, sent time.Time) (store.Extension, error) {
	dir, lease := s.dir(c.Key), leaseDigest(c.Lease)
	for range attempts {
		h := s.live(o.entry)
		var err error
		if h != nil && h.admitted {
			if err = s.touch(o.ctx, h, c.TTL); err == nil {
				s.prolong(h, c.TTL)
				x := s.extension(h.session, sent, c.TTL)
				return x, x.Err
			}
		} else {
			var l line
			l, err = s.list(o.ctx, dir)
			nodes := l.of(lease)
			if h != nil {
				// A waiter's node is not a hold, even if it is now the first in the
				// queue.
				nodes = slices.DeleteFunc(nodes, func(n node) bool { return n.name == h.node.name })
			}
			if errors.Is(err, zk.ErrNoNode) || err == nil && (len(nodes) == 0 || !l.holds(lease)) {
				return store.Extension{}, lost("extend")
			}
			if err == nil {
				m := nodes[0]
				c := c
				c.Weight, c.Limit, c.Wait = m.weight, m.limit, false
				err = s.join(o, c, m, 0, h)
				if err == nil {
					continue
				}
			}
		}
		if !errors.Is(err, errAgain) {
			return store.Extension{}, outcome("extend", err, false)
		}
	}
	return store.Extension{}, outcome("extend", errAgain, true)
}
