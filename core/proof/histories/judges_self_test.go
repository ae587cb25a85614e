package histories_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// ok returns a try that was granted and relied on until the given time. The try was
// released unless released is 0. grant is the number of the key's grant.
func ok(lease string, call, ret int64, grant uint64, until, released int64) *try {
	t := &try{Lease: lease, Who: lease, Key: "k:1", Call: call, Ret: ret, Outcome: "ok", Token: grant * store.TokenStep, Until: until}
	if released > 0 {
		t.ReleaseCall, t.ReleaseRet, t.Released = until, released, "ok"
	}
	return t
}

// lostAtOnce returns a try whose lease was lost before its process received the grant.
func lostAtOnce(lease string, call, ret int64) *try {
	t := ok(lease, call, ret, 1, 0, 0)
	t.ReleaseCall, t.ReleaseRet, t.Released = ret, ret+1, "lost"
	return t
}

func with(token uint64, t *try) *try {
	t.Token = token
	return t
}

func busy(call, ret int64) *try {
	return &try{Lease: "b", Who: "b", Key: "k:1", Call: call, Ret: ret, Outcome: "busy"}
}

// of returns a claim with the given calls of the store, and t as its try unless t is
// nil. If t was released and no call is a release, of adds a successful release.
func of(t *try, calls ...call) *claim {
	c := &claim{Key: "k:1", Who: "p", try: t, calls: calls}
	if t == nil {
		return c
	}
	t.claim, c.Who, c.ID = c, t.Who, t.Lease
	if t.Released == "ok" && !slices.ContainsFunc(calls, func(o call) bool { return o.What == "leave" }) {
		c.calls = append(c.calls, call{"leave", t.ReleaseCall, t.ReleaseRet, "ok"})
	}
	return c
}

func TestJudges(t *testing.T) {
	t.Parallel()
	const linear, illegal = porcupine.Ok, porcupine.Illegal
	type tries []*try
	for name, c := range map[string]struct {
		tries            tries
		overlaps, tokens int
		want             porcupine.CheckResult
	}{
		"consecutive holds":               {tries{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 8, 2, 9, 10)}, 0, 0, linear},
		"lost before Acquire returned":    {tries{lostAtOnce("x", 1, 9), ok("y", 3, 4, 2, 5, 6)}, 0, 0, linear},
		"two holds at once":               {tries{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 4, 2, 9, 10)}, 1, 0, illegal},
		"next hold after a loss":          {tries{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 6, 2, 9, 10)}, 0, 0, linear},
		"next hold before the loss":       {tries{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 4, 2, 9, 10)}, 1, 0, illegal},
		"expired before Acquire returned": {tries{ok("x", 1, 30, 1, 10, 0), ok("y", 8, 12, 2, 13, 14)}, 0, 0, linear},
		"next hold before the expiry":     {tries{ok("x", 1, 30, 1, 10, 0), ok("y", 5, 6, 2, 9, 10)}, 0, 0, illegal},
		"repeated token":                  {tries{ok("x", 1, 2, 7, 5, 6), ok("y", 7, 8, 7, 9, 10)}, 0, 1, illegal},
		"tokens of concurrent grants":     {tries{ok("x", 1, 8, 2, 9, 10), ok("y", 1, 2, 1, 5, 6)}, 0, 0, linear},
		"busy with a holder":              {tries{ok("x", 1, 2, 1, 30, 31), busy(21, 22)}, 0, 0, linear},
		"busy without a holder":           {tries{ok("x", 1, 2, 1, 5, 6), busy(21, 22)}, 0, 0, illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := overlaps(c.tries); len(got) != c.overlaps {
				t.Errorf("the interval oracle says %q, want %d faults", got, c.overlaps)
			}
			if got := tokensBack(c.tries); len(got) != c.tokens {
				t.Errorf("of the tokens is said %q, want %d faults", got, c.tokens)
			}
			if got := (&record{tries: c.tries}).linear(); got != c.want {
				t.Errorf("porcupine says %v, want %v", got, c.want)
			}
		})
	}
	// If fenced is set, staleWrites does not list a refused write.
	t.Run("write after successor", func(t *testing.T) {
		t.Parallel()
		tries := []*try{ok("x", 1, 2, 1, 5, 6), ok("y", 7, 8, 2, 9, 10)}
		writes := []write{{"k", "x", 1, true}, {"k", "y", 2, true}, {"k", "x", 1, false}}
		if got := staleWrites(tries, writes, true); len(got) != 0 {
			t.Errorf("got %q, want none", got)
		}
		if got := staleWrites(tries, writes, false); len(got) != 1 {
			t.Errorf("got %q, want the one of x", got)
		}
	})
	for name, c := range map[string]struct {
		token         uint64 // token of y, to which x passes its hold on; x has token 128
		other         *try
		deeds         []deed
		change        func(x, y *try, c *claim)
		shared, wrong int
		want          porcupine.CheckResult
	}{
		"pass a hold on":                          {129, ok("z", 8, 12, 3, 13, 14), nil, nil, 0, 0, linear},
		"last token of the grant":                 {191, ok("z", 8, 12, 3, 13, 14), nil, nil, 0, 0, linear},
		"token of the previous lease":             {128, ok("z", 8, 12, 3, 13, 14), nil, nil, 0, 1, illegal},
		"token of no grant":                       {192, ok("z", 8, 12, 5, 13, 14), nil, nil, 0, 1, illegal},
		"token of another grant":                  {192, ok("z", 8, 12, 3, 13, 14), nil, nil, 0, 1, illegal},
		"another grant with its token":            {129, with(191, ok("z", 8, 12, 2, 13, 14)), nil, nil, 1, 0, illegal},
		"another grant with an older token":       {129, ok("z", 12, 13, 1, 14, 15), nil, nil, 1, 0, illegal},
		"another grant between":                   {129, ok("z", 5, 6, 3, 7, 8), nil, nil, 0, 0, illegal},
		"release a forgotten hold":                {129, ok("z", 7, 8, 3, 19, 20), []deed{{What: "delete all", From: 6, To: 7}}, nil, 0, 0, illegal},
		"pass on to two":                          {129, nil, nil, func(x, _ *try, _ *claim) { x.Until, x.letGo, x.ReleaseCall = 6, 6, 6 }, 0, 1, illegal},
		"pass on before the release":              {129, nil, nil, func(x, _ *try, _ *claim) { x.letGo, x.ReleaseCall, x.ReleaseRet, x.Released = 0, 0, 0, "" }, 0, 1, linear},
		"pass on after store release":             {129, nil, nil, func(_, _ *try, c *claim) { c.calls = append(c.calls, call{"leave", 4, 5, "ok"}) }, 0, 1, linear},
		"pass on unconfirmed":                     {129, nil, nil, func(_, _ *try, c *claim) { c.calls = c.calls[:1] }, 0, 1, linear},
		"pass on after an earlier confirmation":   {129, nil, nil, func(_, _ *try, c *claim) { c.calls[1].Call = 3 }, 0, 1, linear},
		"pass on an old grant":                    {129, nil, nil, func(x, _ *try, _ *claim) { x.Call, x.Ret = -2*int64(chainTime), -int64(chainTime) }, 0, 1, linear},
		"third lease after a lost release":        {129, nil, nil, thirdAfter("lost"), 0, 1, linear},
		"third lease after an unanswered release": {129, nil, nil, thirdAfter("unavailable"), 0, 1, linear},
		"third lease after a confirmed release":   {129, nil, nil, thirdAfter("ok"), 0, 0, linear},
		"64 leases":                               {129, nil, nil, followers(63), 0, 0, linear},
		"65 leases":                               {129, nil, nil, followers(64), 0, 2, illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, y := ok("x", 1, 2, 2, 4, 9), with(c.token, ok("y", 3, 5, 0, 10, 11))
			x.letGo, y.letGo, y.Follows = 4, 10, true
			under := of(x, call{"ask", 1, 2, "ok"}, call{"extend", 6, 7, "ok"}, call{"leave", 10, 11, "ok"})
			under.token, under.more, y.claim = x.Token, []*try{y}, under
			r := &record{tries: []*try{x, y}, claims: []*claim{under}, deeds: c.deeds}
			if z := c.other; z != nil {
				r.tries, r.claims = append(r.tries, z), append(r.claims, of(z, call{"ask", z.Call, z.Ret, "ok"}))
				z.claim.token = z.Token
			}
			if c.change != nil {
				c.change(x, y, under)
				r.tries = append(r.tries, under.more[1:]...)
			}
			if got := tokensShared(r); len(got) != c.shared {
				t.Errorf("of the tokens is said %q, want %d faults", got, c.shared)
			}
			if got := passedWrongly(r.claims); len(got) != c.wrong {
				t.Errorf("of passing on is said %q, want %d faults", got, c.wrong)
			}
			if got := r.linear(); got != c.want {
				t.Errorf("porcupine says %v, want %v", got, c.want)
			}
		})
	}
	// Every judge finds the overlaps of processes without a lock.
	t.Run("processes without a lock", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, false, grantsAll)
		testserver.Eventually(t, patience, "every judge finds it", func() bool {
			time.Sleep(100 * time.Millisecond)
			r := s.history.read(nil)
			return len(overlaps(r.tries)) > 0 && len(tokensBack(r.tries)) > 0 && len(staleWrites(r.tries, s.register.all(), true)) > 0 && r.linear() == porcupine.Illegal
		})
		s.finish()
	})
	for mistake, name := range map[string]string{
		refusesAll: "busy for a free key",
		keepsSome:  "held after its release",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, false, mistake)
			testserver.Eventually(t, patience, "porcupine finds it", func() bool {
				time.Sleep(100 * time.Millisecond)
				return s.history.read(nil).linear() == porcupine.Illegal
			})
			s.finish()
			if r := s.history.read(nil); len(overlaps(r.tries)) > 0 || len(tokensBack(r.tries)) > 0 {
				t.Error("the other judges find something too")
			}
		})
	}
	t.Run("store without a mistake", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, false, "")
		testserver.Eventually(t, patience, "they have done something", func() bool { return s.history.size() > 1000 })
		s.finish()
		r := s.history.read(nil)
		if got := r.linear(); got != porcupine.Ok || r.operations().busy < 100 {
			t.Errorf("porcupine says %v of %d busy answers", got, r.operations().busy)
		}
	})
}

func (r *record) linear() porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, r.operations().all, patience)
}

// thirdAfter makes a third lease follow y. The release of x has the given outcome.
func thirdAfter(released string) func(x, y *try, c *claim) {
	return func(x, y *try, c *claim) {
		x.Released = released
		z := with(130, ok("z", 3, 12, 0, 14, 15))
		z.letGo, z.Follows, z.claim = 14, true, c
		c.more = append(c.more, z)
		c.calls[2] = call{"extend", 10, 11, "ok"}
		c.calls = append(c.calls, call{"leave", 14, 15, "ok"})
	}
}

// followers makes n leases follow x, including y.
func followers(n int) func(x, y *try, c *claim) {
	return func(_, _ *try, c *claim) {
		c.calls = c.calls[:2]
		for i := range n - 1 {
			at := int64(12 + 4*i)
			c.calls = append(c.calls, call{"extend", at - 2, at - 1, "ok"})
			t := with(uint64(130+i), ok(fmt.Sprint("more ", i), 3, at, 0, at+2, at+3))
			t.letGo, t.Follows, t.claim = at+2, true, c
			c.more = append(c.more, t)
		}
		end := c.last().letGo
		c.calls = append(c.calls, call{"leave", end, end + 1, "ok"})
	}
}
