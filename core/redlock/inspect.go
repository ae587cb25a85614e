package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector. It asks all nodes and shows the holds and the waiters
// that a majority of them has. A hold at fewer nodes is not a lease, even if it excludes
// other claims there. Left is the time for which a majority will have the hold.
//
// Look fails with store.ErrUnavailable if no majority answers, and with
// store.ErrUnsupported if a node is not a store.Inspector.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	const op = "redlock: look"
	if err := claims.CheckKey(op, key, s.Braces()); err != nil {
		return store.State{}, err
	}
	if err := s.inspectable(ctx, op); err != nil {
		return store.State{}, err
	}
	state, _, err := s.lookAt(ctx, op, key)
	return state, err
}

// lookAt does the same as Look, and also returns the state at each node. The state of a
// node that did not answer is empty.
func (s *Store) lookAt(ctx context.Context, op, key string) (state store.State, states []store.State, err error) {
	states = make([]store.State, len(s.nodes))
	errs := s.poll(ctx, func(ctx context.Context, i int, in store.Inspector) (err error) {
		states[i], err = in.Look(ctx, key)
		return err
	})
	var some []store.State
	for i, err := range errs {
		if err != nil {
			states[i] = store.State{}
			continue
		}
		some = append(some, states[i])
	}
	if len(some) < s.quorum {
		return store.State{Key: key}, states, tooFew(ctx, op, errs)
	}
	return s.majority(key, some), states, nil
}

// majority returns the holds and waiters that a majority of all nodes has.
func (s *Store) majority(key string, states []store.State) store.State {
	state := store.State{Key: key}
	var holds, waiters [][]store.Hold
	for _, st := range states {
		holds, waiters = append(holds, st.Holds), append(waiters, st.Waiters)
	}
	state.Holds, state.Waiters = s.common(holds), s.common(waiters)
	return state
}

// common returns the entries that a majority of the lists contains, in the order of
// their first appearance. Two entries without an ID are equal if their weights are
// equal. Of such entries, common returns as many as a majority of the lists contains.
func (s *Store) common(lists [][]store.Hold) []store.Hold {
	type name struct {
		id     string
		weight int64
		nth    int // its position among the entries with this ID and weight in one list
	}
	var names []name
	found := make(map[name][]store.Hold)
	for _, list := range lists {
		seen := make(map[name]int)
		for _, h := range list {
			n := name{id: h.ID, weight: h.Weight}
			seen[n]++
			n.nth = seen[n]
			if found[n] == nil {
				names = append(names, n)
			}
			found[n] = append(found[n], h)
		}
	}
	var all []store.Hold
	for _, n := range names {
		some := found[n]
		if len(some) < s.quorum {
			continue
		}
		// In descending order of Left, a majority has the hold for at least the Left of
		// the entry at quorum-1.
		slices.SortStableFunc(some, func(a, b store.Hold) int { return cmp.Compare(b.Left, a.Left) })
		h := some[s.quorum-1]
		for _, o := range some {
			h.Age = min(h.Age, o.Age)
			h.Process = cmp.Or(h.Process, o.Process) // some nodes do not know it
		}
		all = append(all, h)
	}
	return all
}

// List implements store.Inspector. It lists the keys of the nodes, one node after the
// other, and asks all nodes about each key. A key that is created during the listing
// can be listed once for each node. If a minority of the nodes does not answer, another
// node still lists each key that a majority has.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	const op = "redlock: list"
	if err := inspection.CheckPage(op, most); err != nil {
		return nil, "", err
	}
	at, err := s.parseCursor(op, after)
	if err != nil {
		return nil, "", err
	}
	if err := s.inspectable(ctx, op); err != nil {
		return nil, "", err
	}
	found, following, err := s.nodes[at.node].store.(store.Inspector).List(ctx, at.after, most)
	switch {
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrUnsupported):
		return nil, "", fmt.Errorf("%s: node %d: %w", op, at.node, err)
	case err != nil:
		if at.failed++; at.failed > len(s.nodes)-s.quorum || ctx.Err() != nil {
			return nil, "", fmt.Errorf("%s: node %d: %w: %w", op, at.node, store.ErrUnavailable, err)
		}
	}
	for _, f := range found {
		state, states, err := s.lookAt(ctx, op, f.Key)
		if err != nil {
			return nil, "", err
		}
		if len(state.Holds)+len(state.Waiters) > 0 && !listed(states[:at.node], time.Since(at.began)) {
			page = append(page, state)
		}
	}
	if at.after = following; following == "" {
		if at.node++; at.node == len(s.nodes) {
			return page, "", nil
		}
	}
	return page, fmt.Sprintf("%d %d %d %s", at.node, at.failed, at.began.UnixMilli(), at.after), nil
}

// listed reports whether one of the nodes has had a hold or a waiter of the key for
// longer than the listing has taken. In this case the key was already listed with that
// node. A younger entry can be missing in the listing of that node, for example if the
// node granted the claim after the majority.
func listed(states []store.State, taken time.Duration) bool {
	old := func(h store.Hold) bool { return h.Age > taken }
	return slices.ContainsFunc(states, func(s store.State) bool {
		return slices.ContainsFunc(s.Holds, old) || slices.ContainsFunc(s.Waiters, old)
	})
}

// cursor is the position at which a listing continues.
type cursor struct {
	node   int
	failed int       // the number of earlier nodes that did not answer
	after  string    // the node's own cursor
	began  time.Time // the start of the listing
}

func (s *Store) parseCursor(op, after string) (c cursor, err error) {
	if after == "" {
		c.began = time.Now()
		return c, nil
	}
	f := strings.SplitN(after, " ", 4)
	if len(f) == 4 {
		var errs [3]error
		var began int64
		c.node, errs[0] = strconv.Atoi(f[0])
		c.failed, errs[1] = strconv.Atoi(f[1])
		began, errs[2] = strconv.ParseInt(f[2], 10, 64)
		c.began, c.after = time.UnixMilli(began), f[3]
		if errors.Join(errs[:]...) == nil && c.node >= 0 && c.node < len(s.nodes) && c.failed >= 0 && c.failed <= c.node {
			return c, nil
		}
	}
	return c, fmt.Errorf("%s: there is no such page: %w", op, store.ErrInvalid)
}

// Revoke implements store.Inspector. If a majority has the hold, Revoke asks all nodes to
// revoke the hold. Otherwise it returns store.ErrLost. Revoke returns nil if a majority
// answers and at least one of these nodes had the hold. It returns store.ErrLost if none
// of these nodes had the hold. So several concurrent calls that revoke one hold can all
// return nil. If no majority answers, the outcome is unknown.
//
// A node that was not reached keeps the hold until the holder releases it there, or
// until it expires. The holder has lost the hold at the other nodes.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op = "redlock: revoke"
	if err := claims.CheckKey(op, key, s.Braces()); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(op, hold, keep); err != nil {
		return err
	}
	if err := s.inspectable(ctx, op); err != nil {
		return err
	}
	state, _, err := s.lookAt(ctx, op, key)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(state.Holds, func(h store.Hold) bool { return h.ID == hold }) {
		return inspection.Lost(op)
	}
	had, hadNot := 0, 0
	errs := s.poll(ctx, func(ctx context.Context, _ int, in store.Inspector) error { return in.Revoke(ctx, key, hold, keep) })
	for _, err := range errs {
		switch {
		case err == nil:
			had++
		case errors.Is(err, store.ErrLost):
			hadNot++
		}
	}
	switch {
	case had+hadNot < s.quorum:
	case had > 0:
		return nil
	default:
		return inspection.Lost(op)
	}
	return &uncertain{"revoke", fmt.Errorf("%d of %d nodes had the hold: %w", had, len(s.nodes), errors.Join(errs...))}
}

// inspectable returns an error if a node is not a store.Inspector, or ctx is done.
func (s *Store) inspectable(ctx context.Context, op string) error {
	for _, n := range s.nodes {
		if _, ok := n.store.(store.Inspector); !ok {
			return fmt.Errorf("%s: node %d cannot: %w", op, n.index, store.ErrUnsupported)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// poll asks all nodes in parallel and returns their errors by node. After the time-out
// of a node, it waits only while the pending nodes can still complete a majority. It
// returns soon after ctx is done or Limit has passed.
func (s *Store) poll(ctx context.Context, ask func(ctx context.Context, i int, in store.Inspector) error) []error {
	type answer struct {
		node int
		err  error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit(), errNodeTimeout)
	defer cancel()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	answers := make(chan answer, len(s.nodes))
	errs := make([]error, len(s.nodes))
	for _, n := range s.nodes {
		errs[n.index] = errNodeTimeout
		s.run(func() {
			var err error
			defer func() { answers <- answer{n.index, err} }()
			err = ask(ctx, n.index, n.store.(store.Inspector))
		})
	}
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	late, good, pending := false, 0, len(s.nodes)
	for pending > 0 {
		select {
		case a := <-answers: // every store returns soon after its ctx is done
			pending--
			if errs[a.node] = a.err; kindOf(a.err) < failed {
				good++
			}
		case <-timer.C:
			late = true
		}
		if late && (good >= s.quorum || good+pending < s.quorum) {
			leave(errNodeTimeout)
		}
	}
	return errs
}

func tooFew(ctx context.Context, op string, errs []error) error {
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, fmt.Errorf("node %d: %w", i, err))
		}
		if errors.Is(err, store.ErrUnsupported) {
			return fmt.Errorf("%s: node %d: %w", op, i, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		all = append(all, cause)
	}
	return fmt.Errorf("%s: too few nodes answer: %w: %w", op, store.ErrUnavailable, errors.Join(all...))
}
