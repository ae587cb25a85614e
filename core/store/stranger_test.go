package store_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

// little is a minimal store, like a new author's first version. It serves only exclusive
// claims, in memory.
type little struct {
	mu    sync.Mutex
	holds map[string]grant // by key
}

type grant struct {
	lease string
	ends  time.Time
}

func (h grant) has(c store.Claim) bool { return h.lease == c.Lease && time.Now().Before(h.ends) }

// longer returns a hold of c that lasts for a TTL from now. If h is a live hold of c
// that lasts longer, the returned hold lasts as long as h.
func (h grant) longer(c store.Claim) grant {
	ends := time.Now().Add(c.TTL)
	if h.has(c) && h.ends.After(ends) {
		ends = h.ends
	}
	return grant{c.Lease, ends}
}

func (s *little) CheckClaim(c store.Claim) error {
	switch {
	case c.Key == "" || c.Owner == "" || c.Lease == "" || c.TTL < time.Millisecond || c.Weight < 1 || c.Weight > c.Limit:
		return fmt.Errorf("little: claim: %w", store.ErrInvalid)
	case c.Weight < store.All || c.Via != "" || c.Fair || c.MinToken > 0 || c.Keep > 0 || c.Record != nil:
		return fmt.Errorf("little: claim: %w", store.ErrUnsupported)
	}
	return nil
}

func (s *little) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := s.CheckClaim(c); err != nil {
		return store.Grant{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return store.Grant{}, fmt.Errorf("little: acquire: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	h := s.holds[c.Key]
	if !h.has(c) && time.Now().Before(h.ends) {
		return store.Grant{}, &store.BusyError{Key: c.Key, RetryAfter: time.Until(h.ends)}
	}
	s.holds[c.Key] = h.longer(c)
	return store.Grant{Owner: c.Owner}, nil
}

func (s *little) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := make([]store.Extension, len(claims))
	for i, c := range claims {
		switch h := s.holds[c.Key]; {
		case ctx.Err() != nil:
			answers[i].Err = fmt.Errorf("little: extend: %w: %w", store.ErrUnavailable, context.Cause(ctx))
		case !h.has(c):
			answers[i].Err = store.ErrLost
		default:
			s.holds[c.Key] = h.longer(c)
		}
	}
	return answers
}

func (s *little) Release(ctx context.Context, c store.Claim) error {
	if c.Keep > 0 || c.Record != nil || c.Undo {
		return fmt.Errorf("little: release: %w", store.ErrUnsupported)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return fmt.Errorf("little: release: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	if !s.holds[c.Key].has(c) {
		return store.ErrLost
	}
	delete(s.holds, c.Key)
	return nil
}

// TestStranger runs the contract on a store that imports only packages store and
// storetest of the kit.
func TestStranger(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) func() store.Store {
			s := &little{holds: make(map[string]grant)}
			return func() store.Store { return s }
		},
		Unit: time.Second,
		Wrap: synctest.Test,
		Without: []storetest.Feature{
			storetest.Shared, storetest.Permits, storetest.Reentry, storetest.Joining, storetest.Fair,
			storetest.Fencing, storetest.SameToken, storetest.Keeping, storetest.Records, storetest.Tombstones,
			storetest.Watching, storetest.Inspecting, storetest.Naming, storetest.SoleRevoke, storetest.Carding,
		},
	})
}
