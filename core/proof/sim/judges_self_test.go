package sim_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// story is a run that a test composes. Its clock advances by a tenth of a millisecond
// with each call of the store.
type story struct {
	*journal
	core.Store // answers with grant and err
	at         time.Duration
	grant      store.Grant
	err        error
}

func newStory() *story {
	s := &story{}
	s.journal = newJournal(func() time.Duration { return s.at })
	return s
}

func (s *story) Acquire(context.Context, store.Claim) (store.Grant, error) {
	s.at += 100 * time.Microsecond
	return s.grant, s.err
}

func (s *story) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	s.at += 100 * time.Microsecond
	return slices.Repeat([]store.Extension{{Err: s.err}}, len(claims))
}

func (s *story) Release(context.Context, store.Claim) error {
	s.at += 100 * time.Microsecond
	return s.err
}

func (s *story) tap(client int, err error) core.Store {
	s.err = err
	return listen(struct{ core.Store }{s}, s.journal, client)
}

func claimOf(lease string) store.Claim {
	return store.Claim{Key: "k", Owner: lease, Lease: lease, Weight: store.All, Limit: store.All, TTL: time.Second}
}

// asks sends a claim to the store as client, and makes the store grant the claim with
// token.
func (s *story) asks(client int, c store.Claim, token uint64) *question {
	s.grant = store.Grant{Owner: c.Owner, Token: token}
	if c.Via != "" {
		s.grant.Owner = c.Via
	}
	q := &question{}
	_, _ = s.tap(client, nil).Acquire(context.WithValue(context.Background(), infoKey{}, q), c)
	return q
}

// begins starts a lease of client, with the grant that q requested. If q is nil, the
// hold was passed on.
func (s *story) begins(client int, token uint64, q *question) *hold {
	if q == nil {
		q = &question{}
	}
	return s.begin(&hold{key: "k", client: client, weight: store.All, limit: store.All, token: token}, q)
}

// confirms makes the store answer an Extend of a claim.
func (s *story) confirms(lease string, err error) {
	s.tap(1, err).Extend(context.Background(), []store.Claim{claimOf(lease)})
}

// releases makes the store answer a Release of a claim.
func (s *story) releases(lease string, err error) {
	_ = s.tap(1, err).Release(context.Background(), claimOf(lease))
}

// TestJudges checks that the judges find the mistake in runs with one mistake each, and
// none in runs without a mistake.
func TestJudges(t *testing.T) {
	t.Parallel()
	const T = 1000 // the token of x's grant
	// passed begins a run in which a has the grant x. The release of a was called and
	// has not returned yet.
	passed := func(s *story) (a *hold) {
		a = s.begins(1, T, s.asks(1, claimOf("x"), T))
		s.at += time.Millisecond
		s.letGo(a)
		return a
	}
	// over completes that run after the hold was passed on to b.
	over := func(s *story, a, b *hold) {
		s.confirms("x", nil)
		s.free(a, nil)
		s.letGo(b)
		s.releases("x", nil)
		s.free(b, nil)
	}
	for name, c := range map[string]struct {
		says string // empty if no violation is expected
		run  func(s *story)
	}{
		"passed on and released": {"", func(s *story) {
			a := passed(s)
			over(s, a, s.begins(1, T+1, nil))
			c := s.begins(2, T+64, s.asks(2, claimOf("y"), T+64))
			s.letGo(c)
			s.releases("y", nil)
			s.free(c, nil)
		}},
		"one hold with two leases": {overlaps, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.at++
			b := s.begins(1, T+1, nil)
			s.at++
			s.letGo(a)
			over(s, a, b)
		}},
		"token of the previous lease": {tokensBack, func(s *story) {
			a := passed(s)
			over(s, a, s.begins(1, T, nil))
		}},
		"token differs from its grant": {tokensBack, func(s *story) {
			s.begins(1, T+1, s.asks(1, claimOf("x"), T))
		}},
		"a token beyond the step": {overlaps, func(s *story) {
			a := passed(s)
			over(s, a, s.begins(1, T+64, nil))
		}},
		"token of another process": {overlaps, func(s *story) {
			s.asks(2, claimOf("y"), T+64)
			a := passed(s)
			over(s, a, s.begins(1, T+65, nil))
		}},
		"token of the previous grant": {passedOn, func(s *story) {
			a := s.begins(1, T-100, s.asks(1, claimOf("w"), T-100))
			s.letGo(a)
			s.releases("w", nil)
			s.free(a, nil)
			a = passed(s)
			over(s, a, s.begins(1, T-99, nil))
		}},
		"64 leases under one hold": {"", func(s *story) { chain(s, 64) }},
		"65 leases under one hold": {passedOn, func(s *story) { chain(s, 65) }},
		"lease after its release began": {passedOn, func(s *story) {
			a := passed(s)
			s.releases("x", nil)
			s.free(a, nil)
			s.begins(1, T+1, nil)
		}},
		"lease under a lost hold": {passedOn, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.confirms("x", core.ErrLost)
			s.at++
			s.letGo(a)
			s.begins(1, T+1, nil)
		}},
		"lease after an unanswered confirmation": {passedOn, func(s *story) {
			a := passed(s)
			b := s.begins(1, T+1, nil)
			s.confirms("x", core.ErrUnavailable)
			s.free(a, core.ErrUnavailable)
			s.at++
			s.letGo(b)
			s.begins(1, T+2, nil)
		}},
		"chain beyond ten milliseconds": {passedOn, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.at += chainTime
			s.confirms("x", nil)
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		// The store was not asked about the hold for more than a fiftieth of its TTL.
		"hold confirmed too long ago": {passedOn, func(s *story) {
			c := claimOf("x")
			c.TTL = 50 * time.Millisecond
			a := s.begins(1, T, s.asks(1, c, T))
			s.at += 2 * time.Millisecond
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"hold whose owner was read": {passedOn, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.show(a, "x.1000")
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"a hold that was joined": {passedOn, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			c := claimOf("z")
			c.Via = "x"
			s.begin(&hold{key: "k", client: 1, weight: store.All, limit: store.All, token: T, outer: a}, s.asks(1, c, T))
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"owner of another claim": {passedOn, func(s *story) {
			s.show(s.begins(1, T, s.asks(1, claimOf("x"), T)), "w.1000")
		}},
		"hold extended by its caller": {passedOn, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.extend(context.Background(), a)
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"hold in a fair queue": {passedOn, func(s *story) {
			c := claimOf("x")
			c.Fair = true
			a := s.begins(1, T, s.asks(1, c, T))
			s.letGo(a)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"hold with an unanswered attempt": {passedOn, func(s *story) {
			_, _ = s.tap(1, context.DeadlineExceeded).Acquire(context.Background(), claimOf("x"))
			a := passed(s)
			over(s, a, s.begins(1, T+1, nil))
		}},
		"acquire of a held claim": {passedOn, func(s *story) {
			passed(s)
			s.asks(1, claimOf("x"), T)
		}},
		"release confirmed too early": {untrue, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.confirms("x", nil)
			s.at++
			s.letGo(a)
			s.begins(1, T+1, nil)
			s.free(a, nil)
		}},
		"release confirmed by another release": {"", func(s *story) {
			a := passed(s)
			b := s.begins(1, T+1, nil)
			s.letGo(b)
			s.releases("x", nil)
			s.free(a, nil)
			s.free(b, nil)
		}},
		"release probably confirmed": {"", func(s *story) {
			a := passed(s)
			b := s.begins(1, T+1, nil)
			s.letGo(b)
			s.releases("x", context.DeadlineExceeded)
			s.releases("x", core.ErrLost)
			s.free(a, nil)
			s.free(b, nil)
		}},
		"release of a lost hold": {untrue, func(s *story) {
			a := passed(s)
			b := s.begins(1, T+1, nil)
			s.letGo(b)
			s.releases("x", core.ErrLost)
			s.free(a, nil)
			s.free(b, core.ErrLost)
		}},
		"release after the server forgot": {untrue, func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.at++
			s.wiped()
			s.at++
			s.letGo(a)
			s.releases("x", nil)
			s.free(a, nil)
		}},
		"unknown release then forgotten": {"", func(s *story) {
			a := s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.at++
			s.wiped()
			s.at++
			s.letGo(a)
			s.releases("x", context.DeadlineExceeded)
			s.free(a, nil)
		}},
		"grant with the previous token": {tokensBack, func(s *story) {
			a := passed(s)
			over(s, a, s.begins(1, T+1, nil))
			s.asks(2, claimOf("y"), T+63)
		}},
		"concurrent grants that share tokens": {tokensBack, func(s *story) {
			q := s.asks(1, claimOf("x"), T)
			s.at = q.asked // the second request is sent before the first answer has arrived
			s.asks(2, claimOf("y"), T-63)
		}},
		"extension during the lease": {"", func(s *story) {
			s.begins(1, T, s.asks(1, claimOf("x"), T))
			s.confirms("x", nil)
		}},
		"an extension after the release": {lateExtends, func(s *story) {
			a := passed(s)
			s.releases("x", nil)
			s.free(a, nil)
			s.confirms("x", nil)
		}},
		"extension during the release": {lateExtends, func(s *story) {
			a := passed(s)
			s.at++
			s.releases("x", context.DeadlineExceeded)
			s.confirms("x", nil)
			s.free(a, nil)
		}},
		"extension after an earlier release": {"", func(s *story) {
			a := passed(s)
			b := s.begins(1, T+1, nil)
			s.letGo(b)
			s.at++
			s.confirms("x", nil)
			s.free(a, nil)
			s.releases("x", nil)
			s.free(b, nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.run(s)
			v := s.judge()
			if len(v[c.says]) == 0 && c.says != "" || len(v) > 1 || c.says == "" && len(v) > 0 {
				t.Errorf("the judges say %v, want %q", v, c.says)
			}
		})
	}
}

// chain plays a run in which n leases share one hold of a store without tokens.
func chain(s *story, n int) {
	h := s.begins(1, 0, s.asks(1, claimOf("x"), 0))
	for range n - 1 {
		s.at++
		s.letGo(h)
		next := s.begins(1, 0, nil)
		s.confirms("x", nil)
		s.free(h, nil)
		h = next
	}
	s.letGo(h)
	s.releases("x", nil)
	s.free(h, nil)
}

// TestModel checks the model lock with short histories of consecutive calls.
func TestModel(t *testing.T) {
	t.Parallel()
	did := func(what, lease string, token uint64) call {
		c := call{key: "strict:0", lease: lease, token: token, remembers: true}
		switch what {
		case "begun", "released":
			c.op, c.outcome = "lease", what
		case "granted", "busy":
			c.op, c.outcome = "acquire", what
		default:
			c.op, c.outcome = what, "done"
		}
		return c
	}
	for name, c := range map[string]struct {
		history []call
		want    porcupine.CheckResult
	}{
		"passed on and released": {[]call{
			did("granted", "x", 1000), did("begun", "x", 1001), did("extend", "x", 0), did("released", "x", 0), did("begun", "x", 1063),
			did("release", "x", 0), did("granted", "y", 1064),
		}, porcupine.Ok},
		"lease under a released hold":       {[]call{did("granted", "x", 1000), did("release", "x", 0), did("begun", "x", 1001)}, porcupine.Illegal},
		"lease under another hold":          {[]call{did("granted", "x", 1000), did("begun", "y", 1001)}, porcupine.Illegal},
		"a token beyond the step":           {[]call{did("granted", "x", 1000), did("begun", "x", 1064)}, porcupine.Illegal},
		"the token of the first":            {[]call{did("granted", "x", 1000), did("begun", "x", 1000)}, porcupine.Illegal},
		"grant with another token":          {[]call{did("granted", "x", 1000), did("release", "x", 0), did("granted", "y", 1063)}, porcupine.Illegal},
		"the same grant again":              {[]call{did("granted", "x", 1000), did("granted", "x", 1000)}, porcupine.Ok},
		"the same claim with another token": {[]call{did("granted", "x", 1000), did("granted", "x", 1064)}, porcupine.Illegal},
		"release of a lost hold":            {[]call{did("granted", "x", 1000), did("release", "x", 0), did("released", "x", 0)}, porcupine.Illegal},
		"busy while somebody holds":         {[]call{did("granted", "x", 1000), did("busy", "y", 0)}, porcupine.Ok},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range c.history {
				c.history[i].from, c.history[i].until = time.Duration(2*i+1), time.Duration(2*i+2)
			}
			if got := porcupine.CheckOperations(model, operations(c.history)); got != (c.want == porcupine.Ok) {
				t.Errorf("it is possible: %v, want %v", got, c.want)
			}
		})
	}
}
