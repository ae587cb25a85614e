package histories_test

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// ok is a try that was granted, relied on until and released.
func ok(lease string, call, ret int64, token uint64, until, released int64) *try {
	t := &try{Lease: lease, Who: lease, Key: "k", Call: call, Ret: ret, Outcome: "ok", Token: token, Until: until}
	if released > 0 {
		t.ReleaseCall, t.ReleaseRet, t.Released = until, released, "ok"
	}
	return t
}

func TestJudges(t *testing.T) {
	t.Parallel()
	busy := &try{Lease: "b", Who: "b", Key: "k", Call: 21, Ret: 22, Outcome: "busy"}
	died := &try{Lease: "d", Who: "d", Key: "k", Call: 5, Outcome: "died"}
	for name, c := range map[string]struct {
		tries            []*try
		overlaps, tokens int
		linear, forgets  porcupine.CheckResult
	}{
		"holds that follow each other are fine":             {[]*try{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 8, 2, 9, 10)}, 0, 0, porcupine.Ok, porcupine.Ok},
		"two at a time are told":                            {[]*try{ok("x", 1, 2, 1, 5, 6), ok("y", 3, 4, 2, 9, 10)}, 1, 0, porcupine.Illegal, porcupine.Ok},
		"a hold that was lost may be followed at its end":   {[]*try{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 6, 2, 9, 10)}, 0, 0, porcupine.Ok, porcupine.Ok},
		"and not before that":                               {[]*try{ok("x", 1, 2, 1, 5, 0), ok("y", 3, 4, 2, 9, 10)}, 1, 0, porcupine.Illegal, porcupine.Ok},
		"a token that stays is told":                        {[]*try{ok("x", 1, 2, 7, 5, 6), ok("y", 7, 8, 7, 9, 10)}, 0, 1, porcupine.Illegal, porcupine.Illegal},
		"tokens of grants that went on together may be any": {[]*try{ok("x", 1, 8, 2, 9, 10), ok("y", 1, 2, 1, 5, 6)}, 0, 0, porcupine.Ok, porcupine.Ok},
		"busy while somebody holds is fine":                 {[]*try{ok("x", 1, 2, 1, 30, 31), busy}, 0, 0, porcupine.Ok, porcupine.Ok},
		"busy while nobody holds is told":                   {[]*try{ok("x", 1, 2, 1, 5, 6), busy}, 0, 0, porcupine.Illegal, porcupine.Illegal},
		"unless somebody may hold of whom nothing is known": {[]*try{died, ok("x", 1, 2, 1, 5, 6), busy}, 0, 0, porcupine.Ok, porcupine.Ok},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := overlaps(c.tries); len(got) != c.overlaps {
				t.Errorf("the interval oracle says %q, want %d faults", got, c.overlaps)
			}
			if got := tokensBack(c.tries); len(got) != c.tokens {
				t.Errorf("of the tokens is said %q, want %d faults", got, c.tokens)
			}
			for wiped, want := range map[bool]porcupine.CheckResult{false: c.linear, true: c.forgets} {
				if got := porcupine.CheckOperationsTimeout(model(wiped), operations(c.tries), patience); got != want {
					t.Errorf("porcupine says %v, want %v (forgetful: %v)", got, want, wiped)
				}
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
	t.Run("processes without a lock are told by every judge", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, false, true)
		redistest.Eventually(t, patience, "every judge tells of it", func() bool {
			time.Sleep(100 * time.Millisecond)
			tries := s.history.tries()
			return len(overlaps(tries)) > 0 && len(tokensBack(tries)) > 0 && len(staleWrites(tries, s.register.all(), true)) > 0 &&
				porcupine.CheckOperationsTimeout(model(false), operations(tries), patience) == porcupine.Illegal
		})
		s.finish()
	})
}
