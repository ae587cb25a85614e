package zkstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// aside is the first character of the names below the root that are not keys.
const aside = "."

func (s *Store) cardDir() string { return s.root + "/" + aside + "cards" }

// Put implements store.Cards. A card is an ephemeral node of this Store's session, so
// it lasts for at most as long as the session. Put needs the rights READ, WRITE, CREATE
// and DELETE.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	const op = "put a card"
	text, err := inspection.EncodeCard("zkstore: "+op, c, ttl)
	if err != nil {
		return err
	}
	text = append(strconv.AppendInt(nil, ttl.Milliseconds(), 10), append([]byte("\n"), text...)...)
	_, err = inspect(ctx, s, op, func(a *stage) (struct{}, error) {
		if !a.begin() {
			return struct{}{}, context.Cause(ctx)
		}
		for range attempts {
			err := s.writeCard(ctx, s.cardDir()+"/"+c.Process, text, ttl)
			if !errors.Is(err, errAgain) || ctx.Err() != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, errAgain
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkstore: %s: the right READ, WRITE, CREATE or DELETE is missing: %w: %w", op, store.ErrUnavailable, err)
	}
	return outcome(op, err, false)
}

// writeCard tries once, and returns errAgain if another request has changed the node in
// the meantime.
func (s *Store) writeCard(ctx context.Context, path string, text []byte, ttl time.Duration) error {
	var stat *zk.Stat
	id, _, err := s.sess.do(ctx, func() (err error) {
		stat, err = s.conn.Set(path, text, -1)
		return err
	})
	version := int32(0) // the version of a new node
	create := &zk.CreateRequest{Path: path, Data: text, Acl: s.acl, Flags: zk.FlagEphemeral}
	switch {
	case err == nil && stat.EphemeralOwner == id:
		version = stat.Version
	case err == nil: // the node would end with another session
		_, _, _, err = s.sess.write(ctx, &zk.DeleteRequest{Path: path, Version: stat.Version}, create)
	case errors.Is(err, zk.ErrNoNode):
		if _, _, _, err = s.sess.write(ctx, create); errors.Is(err, zk.ErrNoNode) {
			if err := s.ensure(ctx, s.cardDir()); err != nil {
				return err
			}
		}
	}
	switch {
	case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		return errAgain
	case err != nil:
		return err
	}
	// The session would keep the node alive. So this Store deletes the node after ttl,
	// unless the card was written again.
	time.AfterFunc(ttl, func() {
		s.background(func() {
			_, _, _ = s.sess.do(s.ctx, func() error { return s.conn.Delete(path, version) })
		})
	})
	return nil
}

// Cards implements store.Cards. It reads the names of all cards, and then each card, 16
// at a time. It needs the right READ. Without the rights CREATE and DELETE it can also
// return expired cards that were not deleted yet.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	const op = "cards"
	cards, err := inspect(ctx, s, op, func(*stage) ([]store.Card, error) {
		now, err := s.moment(ctx)
		if err != nil {
			return nil, err
		}
		var names []string
		_, _, err = s.sess.do(ctx, func() (err error) {
			names, _, err = s.conn.Children(s.cardDir())
			return err
		})
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return s.readCards(ctx, names, now)
	})
	return cards, readable(op, err)
}

func (s *Store) readCards(ctx context.Context, names []string, now moment) ([]store.Card, error) {
	var mu sync.Mutex
	var cards []store.Card
	err := each(names, func(name string) error {
		text, stat, err := s.read(ctx, s.cardDir()+"/"+name)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return err
		}
		if c, ok := parseCard(name, text, now.since(stat.Mtime)); ok {
			mu.Lock()
			defer mu.Unlock()
			cards = append(cards, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(cards, func(a, b store.Card) int { return cmp.Compare(a.Process, b.Process) })
	return cards, nil
}

// parseCard decodes the card of a process. since is the time since the card was
// written. It returns false if the card is invalid or has expired.
func parseCard(process string, text []byte, since time.Duration) (c store.Card, ok bool) {
	head, body, _ := bytes.Cut(text, []byte("\n"))
	if ttl, ok := millis(string(head)); !ok || since >= ttl {
		return store.Card{}, false
	}
	return inspection.DecodeCard(process, body)
}
