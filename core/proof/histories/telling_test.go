package histories_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
)

// telling is a store that says what became of its calls. Its worker may want it
// to make a mistake:
//
//	grants all     every claim is granted
//	refuses all    a tenth of the time, every claim is told that the key is busy
//	keeps some     a few claims are told that they have released, and have not
type telling struct {
	*redisstore.Store
	worker *worker
}

const (
	grantsAll  = "grants all"
	refusesAll = "refuses all"
	keepsSome  = "keeps some"
)

type tryName struct{}

// named is a context that tells the store by which acquire it is asked.
func named(try string) context.Context {
	return context.WithValue(context.Background(), tryName{}, try)
}

// told is what an answer says of the outcome. Only after "unknown" the call may
// have changed something, or may yet do so.
func told(err error) string {
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

func (s *telling) say(step string, ctx context.Context, c core.Claim, call int64, outcome string) {
	name, _ := ctx.Value(tryName{}).(string)
	s.worker.say(entry{Lease: name, Claim: c.Lease, Who: s.worker.Name, Key: c.Key, Step: step, Call: call, Ret: mono(), Outcome: outcome})
}

// gave notes that an acquire was granted.
func (s *telling) gave(ctx context.Context, c core.Claim) {
	s.worker.known.Lock()
	defer s.worker.known.Unlock()
	if name, _ := ctx.Value(tryName{}).(string); name != "" {
		s.worker.asked[name] = c.Lease
	}
}

// spares tells whether leases may follow each other under c.
func (s *telling) spares(c core.Claim) bool {
	s.worker.known.Lock()
	defer s.worker.known.Unlock()
	h := s.worker.handed[c.Key]
	return h.claim == c.Lease && h.spare > 0
}

func (s *telling) Acquire(ctx context.Context, c core.Claim) (g core.Grant, err error) {
	call := mono()
	now := time.Now()
	switch {
	case s.worker.Mistake == grantsAll:
		g = core.Grant{Owner: c.Owner, Token: uint64(now.UnixMicro()) / 20_000}
	case s.worker.Mistake == refusesAll && now.UnixMilli()%1000 < 100:
		err = &core.BusyError{Key: c.Key}
	default:
		g, err = s.Store.Acquire(ctx, c)
	}
	if err == nil {
		s.gave(ctx, c)
	}
	s.say("ask", ctx, c, call, told(err))
	return g, err
}

func (s *telling) Extend(ctx context.Context, claims []core.Claim) []core.Extension {
	call := mono()
	answers := s.Store.Extend(ctx, claims)
	for i, a := range answers {
		if outcome := told(a.Err); outcome == "unknown" || s.spares(claims[i]) {
			s.say("extend", ctx, claims[i], call, outcome)
		}
	}
	return answers
}

func (s *telling) Handover(ctx context.Context, from, to core.Claim) (core.Grant, error) {
	if s.worker.Mistake == grantsAll {
		return core.Grant{}, core.ErrUnsupported
	}
	call := mono()
	g, err := s.Store.Handover(ctx, from, to)
	switch outcome := told(err); outcome {
	case "ok", "unknown":
		if err == nil {
			s.worker.known.Lock()
			s.worker.handed[to.Key] = handed{to.Lease, g.Token, uint64(g.Spare)}
			s.worker.known.Unlock()
		}
		s.worker.say(entry{
			Claim: to.Lease, Who: s.worker.Name, Key: to.Key, Step: "ask", Call: call, Ret: mono(), Outcome: outcome,
			Token: g.Token, Spare: uint64(g.Spare),
		})
		s.say("leave", ctx, from, call, outcome)
	case "busy":
		s.say("leave", ctx, from, call, "ok") // others come first
	case "lost":
		s.say("leave", ctx, from, call, "lost")
	}
	return g, err
}

func (s *telling) Release(ctx context.Context, c core.Claim) error {
	call := mono()
	var err error
	if s.worker.Mistake != grantsAll && (s.worker.Mistake != keepsSome || rand.N(50) > 0) {
		err = s.Store.Release(ctx, c)
	}
	s.say("leave", ctx, c, call, told(err))
	return err
}
