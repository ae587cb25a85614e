package pgstore

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// Release implements store.Store in one round trip.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if err := usable("release", &c); err != nil {
		return err
	}
	rows, err := s.do(ctx, "release", released(call("release").text(c.Key), &c).end())
	if err != nil {
		return err
	}
	if len(rows) == 1 && len(rows[0]) == 1 {
		return confirmed("release", string(rows[0][0]))
	}
	return confirmed("release", "")
}

// released adds the arguments that give_up takes.
func released(st statement, c *store.Claim) statement {
	st = st.text(c.Lease).num(millis(c.TTL)).num(millis(c.Keep)).bool(c.Undo && c.Record == nil)
	if r := c.Record; r != nil {
		return st.num(int64(r.Attempt)).bool(r.Done).num(millis(r.Retain)).bytes(r.Value)
	}
	return st.null("bigint").null("boolean").null("bigint").null("bytea")
}

// confirmed reads the answer of release and extend.
func confirmed(op, code string) error {
	switch code {
	case okay:
		return nil
	case lost:
		return fmt.Errorf("pgstore: %s: %w", op, store.ErrLost)
	}
	return fmt.Errorf("pgstore: %s: outcome unknown: answer cannot be read", op)
}
