package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// replicated makes c wait for the replicas of WithReplicas. Without WithReplicas, c does
// not wait.
func (s *Store) replicated(c *pipeline.Call) *pipeline.Call { return c.Wait(s.replicas, s.ackWait) }

// acknowledged returns nil if enough replicas have the grant of c with this token. r is
// the outcome of the grant. If too few replicas have it, acknowledged releases the grant
// and returns an error.
func (s *Store) acknowledged(ctx context.Context, c *store.Claim, token uint64, r pipeline.Replicated) error {
	switch {
	case !s.acks:
		return nil
	case r.Err != nil:
		return fmt.Errorf("redisstore: acquire: outcome unknown: waiting for replicas: %w", r.Err)
	case r.Replicas < int64(s.replicas):
		return s.releaseUnseen(ctx, c, token, r.Replicas)
	}
	return nil
}

// confirmReplicated saves a record and waits until enough replicas have it. A saved
// record stays saved. So the outcome is unknown if too few replicas have it. A repeated
// release waits for the replicas again.
func (s *Store) confirmReplicated(ctx context.Context, op string, cmd *pipeline.Call) error {
	ctx, cancel := pipeline.Bounded(ctx)
	defer cancel()
	a, r, err := s.call(ctx, op, s.replicated(cmd))
	if err == nil {
		err = confirmed(op, a)
	}
	switch {
	case err != nil:
		return err
	case r.Err != nil:
		return fmt.Errorf("redisstore: %s: outcome unknown: waiting for replicas: %w", op, r.Err)
	case r.Replicas < int64(s.replicas):
		return fmt.Errorf("redisstore: %s: outcome unknown: %d of %d replicas have the record", op, r.Replicas, s.replicas)
	}
	return nil
}

// releaseUnseen releases a grant that too few replicas have, and undoes the run that the
// grant began. It returns the error for the caller. token is 0 if unknown. When ctx is
// done, releaseUnseen returns, but the release continues.
func (s *Store) releaseUnseen(ctx context.Context, c *store.Claim, token uint64, acks int64) error {
	short := fmt.Errorf("%d of %d replicas have the grant", acks, s.replicas)
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), pipeline.Limit)
	begun := *c
	begun.Record, begun.Undo, begun.Last = nil, true, token // the release must not save the record
	_, left, err := calls.Detached(ctx, func() (struct{}, error) {
		defer cancel()
		return struct{}{}, s.Release(back, begun)
	})
	if !left && (err == nil || errors.Is(err, store.ErrLost)) {
		return fmt.Errorf("redisstore: acquire: %w: %w", store.ErrUnavailable, short)
	}
	// The release can still arrive, and would release a new grant of the same claim. So
	// the claim is not sent again until the first grant has expired.
	s.doomed.Store(begun.Lease, struct{}{})
	time.AfterFunc(max(c.TTL, pipeline.Limit), func() { s.doomed.Delete(begun.Lease) })
	// The release's error is not wrapped, because it can match store.ErrUnavailable. But
	// the acquire was sent.
	return fmt.Errorf("redisstore: acquire: outcome unknown: %w, and its release failed: %v", short, err)
}
