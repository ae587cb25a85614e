package histories_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/testserver"
)

// ok is a try that was granted, relied on until and released.
func ok(lease string, call, ret int64, token uint64, until, released int64) *try {
	t := &try{Lease: lease, Who: lease, Key: "k:1", Call: call, Ret: ret, Outcome: "ok", Token: token, Until: until}
	if released > 0 {
		t.ReleaseCall, t.ReleaseRet, t.Released = until, released, "ok"
	}
	return t
}

// busy is a try that was told so.
func busy(call, ret int64) *try {
	return &try{Lease: "b", Who: "b", Key: "k:1", Call: call, Ret: ret, Outcome: "busy"}
}

// of makes a claim of what the store said, t's if there is such.
func of(t *try, calls ...call) *claim {
	c := &claim{Key: "k:1", Who: "p", try: t, calls: calls}
	if t != nil {
		t.claim, c.Who, c.ID = c, t.Who, t.Lease
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
		"holds that follow each other are fine":             {tries{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 8, 2, 9, 10)}, 0, 0, linear},
		"two at a time are told":                            {tries{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 4, 2, 9, 10)}, 1, 0, illegal},
		"a hold that was lost may be followed at its end":   {tries{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 6, 2, 9, 10)}, 0, 0, linear},
		"and not before that":                               {tries{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 4, 2, 9, 10)}, 1, 0, illegal},
		"a hold can be over before its process hears of it": {tries{ok("x", 1, 30, 1, 10, 0), ok("y", 8, 12, 2, 13, 14)}, 0, 0, linear},
		"and is not before its end":                         {tries{ok("x", 1, 30, 1, 10, 0), ok("y", 5, 6, 2, 9, 10)}, 0, 0, illegal},
		"a token that stays is told":                        {tries{ok("x", 1, 2, 7, 5, 6), ok("y", 7, 8, 7, 9, 10)}, 0, 1, illegal},
		"tokens of grants that went on together may be any": {tries{ok("x", 1, 8, 2, 9, 10), ok("y", 1, 2, 1, 5, 6)}, 0, 0, linear},
		"busy while somebody holds is fine":                 {tries{ok("x", 1, 2, 1, 30, 31), busy(21, 22)}, 0, 0, linear},
		"busy while nobody holds is told":                   {tries{ok("x", 1, 2, 1, 5, 6), busy(21, 22)}, 0, 0, illegal},
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
	t.Run("a write after a successor's is told, and one that was refused is not", func(t *testing.T) {
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
		token, spare uint64 // of the lease that follows, and for those
		other        *try
		deeds        []deed
		tokens       int
		want         porcupine.CheckResult
	}{
		"a lease may follow another one of its claim": {2, 3, ok("z", 8, 12, 5, 13, 14), nil, 0, linear},
		"not with its token":                          {1, 3, ok("z", 8, 12, 5, 13, 14), nil, 1, illegal},
		"not with one that is not its claim's":        {5, 3, ok("z", 8, 12, 6, 13, 14), nil, 0, illegal},
		"and nobody else has its tokens":              {2, 3, ok("z", 8, 12, 4, 13, 14), nil, 0, illegal},
		"or comes between":                            {2, 3, ok("z", 5, 6, 5, 7, 8), nil, 0, illegal},
		"nor releases what the server forgot":         {2, 3, ok("z", 7, 8, 5, 19, 20), []deed{{What: "delete all", From: 6, To: 7}}, 0, illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, y := ok("x", 1, 2, 1, 4, 9), ok("y", 3, 5, c.token, 10, 11)
			y.Follows = true
			under := of(x, call{"ask", 1, 2, "ok"}, call{"leave", 10, 11, "ok"})
			under.spare, under.more, y.claim = c.spare, []*try{y}, under
			r := &record{tries: []*try{x, y, c.other}, claims: []*claim{under}, deeds: c.deeds}
			if got := sharedTokens(r.claims); len(got) != c.tokens {
				t.Errorf("of the tokens is said %q, want %d faults", got, c.tokens)
			}
			if got := r.linear(); got != c.want {
				t.Errorf("porcupine says %v, want %v", got, c.want)
			}
		})
	}
	t.Run("processes without a lock are told by every judge", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, false, grantsAll)
		testserver.Eventually(t, patience, "every judge tells of it", func() bool {
			time.Sleep(100 * time.Millisecond)
			r := s.history.read(nil)
			return len(overlaps(r.tries)) > 0 && len(tokensBack(r.tries)) > 0 && len(staleWrites(r.tries, s.register.all(), true)) > 0 && r.linear() == porcupine.Illegal
		})
		s.finish()
	})
	for mistake, name := range map[string]string{
		refusesAll: "processes that are kept out of a free key are told by porcupine",
		keepsSome:  "processes whose key stays taken after its release are told by porcupine",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, false, mistake)
			testserver.Eventually(t, patience, "porcupine tells of it", func() bool {
				time.Sleep(100 * time.Millisecond)
				return s.history.read(nil).linear() == porcupine.Illegal
			})
			s.finish()
			if r := s.history.read(nil); len(overlaps(r.tries)) > 0 || len(tokensBack(r.tries)) > 0 {
				t.Error("the other judges tell of something too")
			}
		})
	}
	t.Run("processes whose store makes no mistake are told by nobody", func(t *testing.T) {
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
