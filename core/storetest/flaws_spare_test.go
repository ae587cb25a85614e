package storetest_test

import (
	"context"

	"github.com/lockkit/lockkit/core"
)

// spareFlaws are about the tokens that a handover brings along.
var spareFlaws = []flaw{
	{"spares tokens and grants them to others", []string{
		"spare tokens/tokens grow past them from release to release",
		"spare tokens/tokens grow past them while the key is forgotten",
		"spare tokens/tokens grow past them across expiry",
		"spare tokens/tokens grow past them from handover to handover",
		"spare tokens/tokens grow past them where somebody waits",
		"spare tokens/they come after one that is asked for",
		"spare tokens/the same claim again has the last of them",
		"spare tokens/who joins has the last of them",
		"spare tokens/a further hold of the owner has the last of them",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			n := to.Spare
			to.Spare = 0
			g, err := s.Store.Handover(ctx, from, to)
			if g.Token > 0 {
				g.Spare = n
			}
			return g, err
		}
	}},
	{"forgets the spare tokens with the hold", []string{
		"spare tokens/tokens grow past them from release to release",
		"spare tokens/tokens grow past them while the key is forgotten",
		"spare tokens/tokens grow past them across expiry",
		"spare tokens/tokens grow past them from handover to handover",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			n := to.Spare
			to.Spare = 0
			g, err := s.Store.Handover(ctx, from, to)
			if g.Token > 0 {
				s.note(to.Owner, to)
				s.count(to.Owner, n)
				g.Spare = n
			}
			return g, err
		}
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 {
				g.Token += uint64(s.count(g.Owner, 0))
			}
			return g, err
		}
	}},
	{"gives who joins the first of the spare tokens", []string{
		"spare tokens/the same claim again has the last of them",
		"spare tokens/who joins has the last of them",
		"spare tokens/a further hold of the owner has the last of them",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			g, err := s.Store.Handover(ctx, from, to)
			s.count(to.Owner, g.Spare)
			return g, err
		}
		s.acquire = func(ctx context.Context, c core.Claim) (core.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if g.Token > 0 {
				g.Token -= uint64(s.count(g.Owner, 0))
			}
			return g, err
		}
	}},
	{"grants the last of the spare tokens", []string{
		"spare tokens/the same claim again has the last of them",
		"spare tokens/tokens grow past them from release to release",
		"spare tokens/they come after one that is asked for",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			g, err := s.Store.Handover(ctx, from, to)
			g.Token += uint64(g.Spare)
			return g, err
		}
	}},
	{"spares half of what is asked for", []string{
		"spare tokens/a handover gives as many as it is asked for, or none",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.Spare /= 2
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"spares tokens that nobody asks for", []string{
		"spare tokens/a handover that asks for none gets none",
		"spare tokens/a handover gives as many as it is asked for, or none",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			to.Spare++
			return s.Store.Handover(ctx, from, to)
		}
	}},
	{"spares tokens for readers and permits", []string{
		"spare tokens/a handover to a reader gives none",
		"spare tokens/a handover of permits gives none",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			g, err := s.Store.Handover(ctx, from, to)
			if err == nil {
				g.Spare = to.Spare
			}
			return g, err
		}
	}},
	{"passes over a token that is asked for with others to spare", []string{
		"spare tokens/they come after one that is asked for",
	}, func(s *tampered) {
		s.handover = func(ctx context.Context, from, to core.Claim) (core.Grant, error) {
			if to.Spare > 0 {
				to.MinToken = 0
			}
			return s.Store.Handover(ctx, from, to)
		}
	}},
}
