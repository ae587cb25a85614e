package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

var _ core.Handover = (*Store)(nil)

// Handover implements core.Handover in one round trip, and a second one if the
// server does not know the script.
//
// With plain keys nobody is known to wait, so a claim that yields is told busy.
// With WithReplicas, a grant that too few replicas have is given back, and the
// outcome is reported as unknown.
func (s *Store) Handover(ctx context.Context, from, to core.Claim) (core.Grant, error) {
	if err := s.passable(&from, &to); err != nil {
		return core.Grant{}, err
	}
	var cmd *command
	if s.plain {
		cmd = s.newCommand(plainHandoverScript, to.Key, "handover").
			text(from.Owner).text(to.Owner).num(millis(to.TTL))
		if to.Yield {
			cmd.word("y")
		}
	} else {
		cmd = s.newCommand(handoverScript, to.Key, s.handovers.word(to.Fair, to.Yield)).
			text(from.Lease).text(to.Lease).text(to.Owner).num(millis(to.TTL)).word(to.Spare)
		if to.Weight < core.All || to.MinToken > 0 {
			cmd.num(to.Weight).num(to.Limit).num(int64(to.MinToken))
		}
	}
	if s.acks {
		kept := to
		return s.passReplicated(ctx, &kept, cmd.ready(ctx))
	}
	a, err := s.call(ctx, "handover", cmd.ready(ctx))
	if err != nil {
		return core.Grant{}, err
	}
	return passed(&to, a)
}

// passable refuses what a handover cannot do.
func (s *Store) passable(from, to *core.Claim) error {
	if err := s.usable("handover", to); err != nil {
		return err
	}
	if err := s.usable("release", from); err != nil {
		return err
	}
	switch {
	case from.Key != to.Key:
		return fmt.Errorf("redisstore: handover: between two keys: %w", core.ErrInvalid)
	case from.Keep > 0, from.Record != nil, to.Record != nil, to.Via != "":
		return fmt.Errorf("redisstore: handover: with Keep, Via or a record: %w", core.ErrUnsupported)
	case s.plain:
		return plainly("handover", to)
	}
	return nil
}

// passReplicated is Handover with WithReplicas.
func (s *Store) passReplicated(ctx context.Context, to *core.Claim, cmd *command) (core.Grant, error) {
	if _, doomed := s.doomed.Load(to.Lease); doomed {
		return core.Grant{}, fmt.Errorf("redisstore: handover: an earlier grant of this lease is being given back: %w", core.ErrUnsupported)
	}
	o, a, err := s.callReplicated(ctx, "handover", cmd)
	if err != nil {
		return core.Grant{}, err
	}
	g, err := passed(to, a)
	switch {
	case err != nil:
		return core.Grant{}, err
	case o.err != nil:
		return core.Grant{}, fmt.Errorf("redisstore: handover: outcome unknown: waiting for replicas: %w", o.err)
	case o.acks < int64(s.replicas):
		// Not wrapped: something was changed, as from is released.
		return core.Grant{}, fmt.Errorf("redisstore: handover: outcome unknown: %v", s.giveBack(ctx, to, o.acks))
	}
	return g, nil
}

// passed reads the answer of handover.lua.
func passed(to *core.Claim, a answer) (core.Grant, error) {
	switch a.word {
	case okay:
		g := core.Grant{Owner: to.Owner, Token: uint64(a.n)}
		if to.Weight == core.All {
			g.Spare = to.Spare
		}
		return g, nil
	case busy:
		return granted(to, a)
	case lost:
		return core.Grant{}, fmt.Errorf("redisstore: handover: %w", core.ErrLost)
	}
	return core.Grant{}, errors.New("redisstore: handover: outcome unknown: answer cannot be read")
}
