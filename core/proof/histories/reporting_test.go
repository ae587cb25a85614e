package histories_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// reporting is a store that reports the outcomes of its calls to the worker. The worker
// can select a mistake:
//
//	grants all     every claim is granted
//	refuses all    a tenth of the time, the answer to every claim is busy
//	keeps some     a few releases are confirmed without an effect
type reporting struct {
	*redisstore.Store
	worker *worker
}

const (
	grantsAll  = "grants all"
	refusesAll = "refuses all"
	keepsSome  = "keeps some"
)

type tryName struct{}

// named returns a context from which the store learns the name of the acquire.
func named(try string) context.Context {
	return context.WithValue(context.Background(), tryName{}, try)
}

// outcomeOf returns the outcome that an answer shows. "unknown" leaves open whether the
// call has, or will have, an effect.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, core.ErrBusy):
		return "busy"
	case errors.Is(err, core.ErrLost):
		return "lost"
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrInvalid), errors.Is(err, core.ErrUnsupported):
		return "unchanged"
	}
	return "unknown"
}

func (s *reporting) say(step string, ctx context.Context, c store.Claim, call int64, outcome string, token uint64) {
	name, _ := ctx.Value(tryName{}).(string)
	s.worker.say(entry{
		Lease: name, Claim: c.Lease, Who: s.worker.Name, Key: c.Key, Step: step, Call: call, Ret: mono(), Outcome: outcome, Token: token,
	})
}

// gave records a grant, and the acquire that requested it.
func (s *reporting) gave(ctx context.Context, c store.Claim, g store.Grant) {
	s.worker.known.Lock()
	defer s.worker.known.Unlock()
	got := grant{c.Lease, g.Token}
	if name, _ := ctx.Value(tryName{}).(string); name != "" {
		s.worker.asked[name] = got
	}
	all := append(s.worker.granted[c.Key], got)
	s.worker.granted[c.Key] = all[max(0, len(all)-mostGrants):]
}

func (s *reporting) Acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	call := mono()
	now := time.Now()
	switch {
	case s.worker.Mistake == grantsAll:
		g = store.Grant{Owner: c.Owner, Token: uint64(now.UnixMicro()) / 20_000}
	case s.worker.Mistake == refusesAll && now.UnixMilli()%1000 < 100:
		err = &core.BusyError{Key: c.Key}
	default:
		g, err = s.Store.Acquire(ctx, c)
	}
	if err == nil {
		s.gave(ctx, c, g)
	}
	s.say("ask", ctx, c, call, outcomeOf(err), g.Token)
	return g, err
}

func (s *reporting) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	call := mono()
	answers := s.Store.Extend(ctx, claims)
	for i, a := range answers {
		s.say("extend", ctx, claims[i], call, outcomeOf(a.Err), 0)
	}
	return answers
}

func (s *reporting) Release(ctx context.Context, c store.Claim) error {
	call := mono()
	var err error
	if s.worker.Mistake != grantsAll && (s.worker.Mistake != keepsSome || rand.N(50) > 0) {
		err = s.Store.Release(ctx, c)
	}
	s.say("leave", ctx, c, call, outcomeOf(err), 0)
	return err
}
