package redlock_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
)

var errDown = errors.New("no route to host")

// switched is a node whose inspections can fail.
type switched struct {
	*memstore.Store
	down bool
	lost error // the error of a Revoke whose reply is lost
}

func (s *switched) Look(ctx context.Context, key string) (store.State, error) {
	if s.down {
		return store.State{}, errDown
	}
	return s.Store.Look(ctx, key)
}

func (s *switched) List(ctx context.Context, after string, most int) ([]store.State, string, error) {
	if s.down {
		return nil, "", errDown
	}
	return s.Store.List(ctx, after, most)
}

func (s *switched) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	if s.down {
		return errDown
	}
	err := s.Store.Revoke(ctx, key, hold, keep)
	return cmp.Or(s.lost, err)
}

// TestInspector_UnknownRevoke checks that the error of a revoke with an unknown outcome
// does not match the class of one node's answer, which promises that nothing has
// changed.
func TestInspector_UnknownRevoke(t *testing.T) {
	t.Parallel()
	var nodes [3]*switched
	var stores []store.Store
	for i := range nodes {
		nodes[i] = &switched{Store: memstore.New()}
		stores = append(stores, nodes[i])
	}
	s := newStore(t, stores, redlock.WithNodeTimeout(slow))
	errLost := errors.New("lost reply")
	for name, edit := range map[string]func(c store.Claim){
		"hold at two nodes": func(c store.Claim) {
			for i := range 2 {
				nodes[i].lost = errLost
			}
			if err := nodes[2].Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
		"refused by one node": func(store.Claim) {
			nodes[1].lost = errLost
			nodes[2].lost = fmt.Errorf("%w: %w", store.ErrUnavailable, errDown)
		},
	} {
		c := store.Claim{Key: name, Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: time.Minute}
		for _, n := range nodes {
			if _, err := n.Acquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		edit(c)
		err := s.Revoke(t.Context(), c.Key, store.HoldID(c.Lease), 0)
		for _, class := range []error{store.ErrLost, store.ErrUnavailable, store.ErrInvalid, store.ErrUnsupported} {
			if err == nil || errors.Is(err, class) {
				t.Errorf("%s: got %v, want an unknown outcome", name, err)
				break
			}
		}
		for _, n := range nodes {
			n.lost = nil
		}
	}
}

// TestInspectorOfAMajority checks that a hold is shown, and can be revoked, if a
// majority has it.
func TestInspectorOfAMajority(t *testing.T) {
	t.Parallel()
	claim := func(key string) store.Claim {
		return store.Claim{Key: key, Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: time.Minute}
	}
	var nodes [3]*switched
	var stores []store.Store
	for i := range nodes {
		nodes[i] = &switched{Store: memstore.New()}
		stores = append(stores, nodes[i])
	}
	s := newStore(t, stores, redlock.WithNodeTimeout(slow))
	grant := func(c store.Claim, at ...int) {
		t.Helper()
		for _, i := range at {
			if _, err := nodes[i].Store.Acquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
	}
	listed := func() (keys map[string]int, err error) {
		keys = make(map[string]int)
		for after := ""; ; {
			page, next, err := s.List(t.Context(), after, 2)
			if err != nil {
				return nil, err
			}
			for _, state := range page {
				keys[state.Key]++
			}
			if after = next; next == "" {
				return keys, nil
			}
		}
	}
	both, one := claim("both"), claim("one")
	grant(both, 1, 2)
	grant(one, 0)
	for i := range 5 {
		grant(claim(fmt.Sprint("all ", i)), 0, 1, 2)
	}
	for down := range 3 {
		nodes[down].down = true
		if down == 0 {
			if state, err := s.Look(t.Context(), "both"); err != nil || len(state.Holds) != 1 || state.Holds[0].ID != store.HoldID(both.Lease) {
				t.Errorf("got %+v and %v, want the hold of the majority", state, err)
			}
		}
		keys, err := listed()
		if err != nil || keys["one"] > 0 {
			t.Errorf("node %d is down: got %v and %v", down, keys, err)
		}
		for i := range 5 {
			if n := keys[fmt.Sprint("all ", i)]; n == 0 {
				t.Errorf("node %d is down, and a key that all have is not listed: %v", down, keys)
			}
		}
		nodes[down].down = false
	}
	// A hold at a minority is not a lease.
	if state, err := s.Look(t.Context(), "one"); err != nil || len(state.Holds) != 0 {
		t.Errorf("got %+v and %v of a hold at one node", state, err)
	}
	if err := s.Revoke(t.Context(), "one", store.HoldID(one.Lease), 0); !errors.Is(err, store.ErrLost) {
		t.Errorf("got %v, want %v", err, store.ErrLost)
	}
	if x := nodes[0].Store.Extend(t.Context(), []store.Claim{one}); x[0].Err != nil {
		t.Errorf("the hold at one node has changed: %v", x[0].Err)
	}
	nodes[0].down = true
	if err := s.Revoke(t.Context(), "both", store.HoldID(both.Lease), time.Second); err != nil {
		t.Errorf("revoke with two nodes: %v", err)
	}
	nodes[1].down = true
	if _, err := s.Look(t.Context(), "both"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errDown) {
		t.Errorf("look with one node: got %v, want %v", err, store.ErrUnavailable)
	}
	if _, err := listed(); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("list with one node: got %v, want %v", err, store.ErrUnavailable)
	}
	if err := s.Revoke(t.Context(), "both", store.HoldID(both.Lease), 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("revoke with one node: got %v, want %v", err, store.ErrUnavailable)
	}
}

// unnamed is a node that does not know the processes of its holds.
type unnamed struct{ *memstore.Store }

func (s unnamed) Look(ctx context.Context, key string) (store.State, error) {
	state, err := s.Store.Look(ctx, key)
	for i := range state.Holds {
		state.Holds[i].Process = ""
	}
	return state, err
}

// TestMajority_KnownProcess checks that nodes that know the process and nodes
// that do not know it form one majority.
func TestMajority_KnownProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Any two of these nodes include one that knows the process.
		s := newStore(t, []store.Store{memstore.New(), unnamed{memstore.New()}, memstore.New()})
		c := store.Claim{Key: "order:1", Owner: rand.Text(), Lease: "PROCESSA" + rand.Text(), Weight: store.All, Limit: store.All, TTL: time.Minute}
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		state, err := s.Look(t.Context(), c.Key)
		if err != nil || len(state.Holds) != 1 || state.Holds[0].Process != "PROCESSA" {
			t.Errorf("got %+v and %v, want one hold of PROCESSA", state, err)
		}
	})
}

// TestListingOfAMajority checks a key that the first node gets after the keys of that
// node were listed. A later page must have that key. A key that all nodes have from the
// beginning is listed once. In virtual time the listing takes no time, so the early key
// is older than the listing.
func TestListingOfAMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := memstores(3)
		s := newStore(t, nodes)
		grant := func(key string, at ...int) {
			t.Helper()
			c := store.Claim{Key: key, Owner: key, Lease: key, Weight: store.All, Limit: store.All, TTL: time.Minute}
			for _, i := range at {
				if _, err := nodes[i].Acquire(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
		}
		grant("late", 1, 2)
		grant("early", 0, 1, 2)
		time.Sleep(time.Second)
		times := make(map[string]int)
		for after := ""; ; {
			page, next, err := s.List(t.Context(), after, 10)
			if err != nil {
				t.Fatal(err)
			}
			if after == "" {
				grant("late", 0)
			}
			for _, state := range page {
				times[state.Key]++
			}
			if after = next; next == "" {
				break
			}
		}
		if times["late"] == 0 || times["early"] != 1 {
			t.Errorf("the pages had the keys so often: %v; want the late one, and the early one once", times)
		}
	})
}

// TestNodeWithoutAnInspector checks that the store cannot be inspected if one of its
// nodes cannot be inspected.
func TestNodeWithoutAnInspector(t *testing.T) {
	t.Parallel()
	type bare struct{ store.Store }
	s := newStore(t, []store.Store{memstore.New(), bare{memstore.New()}, memstore.New()})
	_, err := s.Look(t.Context(), "key")
	_, _, listErr := s.List(t.Context(), "", 1)
	for _, err := range []error{err, listErr, s.Revoke(t.Context(), "key", "id", 0)} {
		if !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("got %v, want %v", err, store.ErrUnsupported)
		}
	}
}
