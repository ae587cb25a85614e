package histories_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestDoubts checks the model's verdicts on busy answers that the known holder does not
// explain, and on servers that lose data.
func TestDoubts(t *testing.T) {
	t.Parallel()
	const linear, illegal = porcupine.Ok, porcupine.Illegal
	died := func() *try { return &try{Lease: "d", Who: "d.1", Key: "k:1", Call: 5, Outcome: "died"} }
	failed := func() *try {
		return &try{Lease: "f", Who: "f", Key: "k:1", Call: 3, Ret: 6, Outcome: "unavailable"}
	}
	lost := func() *try {
		x := ok("x", 1, 2, 1, 5, 0)
		x.ReleaseCall, x.ReleaseRet, x.Released = 5, 7, "lost"
		return x
	}
	kill := []deed{{What: "kill", Who: "d", From: 6, To: 10}}
	forget := func(from, to int64) []deed { return []deed{{What: "delete all", From: from, To: to}} }
	over := func(from, to int64) []deed { return []deed{{What: "fail over", From: from, To: to}} }
	left := func(ids ...string) []deed {
		return []deed{{What: "fail over", From: 8, To: 10, At: 9, Left: map[string][]string{"k:1": ids, "k:2": {}, "k:3": {}, "k:4": {}}}}
	}
	add := func(r *record, more ...*try) *record {
		r.tries = append(r.tries, more...)
		return r
	}
	of := func(t *try, calls ...call) *record {
		r := &record{claims: []*claim{of(t, calls...)}}
		if t != nil {
			add(r, t)
		}
		return r
	}
	during := func(r *record, deeds []deed) *record {
		r.deeds = deeds
		return r
	}
	late := life + 11 // after the holds that existed at 10 have expired
	for name, c := range map[string]struct {
		record *record
		want   porcupine.CheckResult
	}{
		"a process that died may hold":                     {add(&record{}, died(), busy(21, 22)), linear},
		"until that has expired":                           {during(add(&record{}, died(), busy(late-2, late-1)), kill), linear},
		"and not for longer":                               {during(add(&record{}, died(), busy(late, late+1)), kill), illegal},
		"nor before the store was asked for the last time": {during(add(of(died(), call{"ask", 6, 9, "busy"}), busy(6, 8)), kill), illegal},

		"an unknown grant is one until its clean-up":    {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "lost"}), busy(7, 8)), linear},
		"and is none after that":                        {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "lost"}), busy(11, 12)), illegal},
		"but a straggler may come after a mere release": {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "ok"}), busy(11, 12)), linear},
		"an unknown clean-up does not settle it":        {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "unknown"}), busy(11, 12)), linear},
		"a call that changed nothing gives nothing":     {add(of(failed(), call{"ask", 4, 5, "unchanged"}), busy(5, 6)), illegal},
		"nor does one that was told busy":               {add(of(failed(), call{"ask", 4, 5, "unchanged"}, call{"leave", 5, 7, "ok"}), busy(5, 6)), illegal},
		"a busy answer of the store is asked about too": {of(failed(), call{"ask", 4, 5, "busy"}), illegal},
		"a grant to one that has gone is one":           {add(of(nil, call{"ask", 4, 5, "ok"}, call{"leave", 9, 10, "ok"}), busy(7, 8)), linear},
		"until it is given back":                        {add(of(nil, call{"ask", 4, 5, "ok"}, call{"leave", 9, 10, "ok"}), busy(11, 12)), illegal},
		"a grant that came too late was one":            {add(of(ok("x", 3, 22, 2, 30, 31), call{"ask", 4, 5, "ok"}, call{"ask", 20, 21, "ok"}), ok("y", 10, 11, 1, 12, 13), busy(6, 7)), linear},
		"and the one that was used is no other":         {add(of(ok("x", 3, 22, 1, 30, 31), call{"ask", 20, 21, "ok"}), busy(1, 2)), illegal},
		"after a release a straggler may come":          {add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}), busy(12, 13)), linear},
		"unless the store says that it cannot":          {add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}, call{"leave", 10, 11, "lost"}), busy(12, 13)), illegal},
		"and remembers it":                              {during(add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}, call{"leave", 10, 11, "lost"}), busy(12, 13)), forget(11, 12)), linear},
		"a hold that was lost may go on for a while":    {add(of(lost(), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "lost"}), busy(6, 8)), linear},
		"until its clean-up":                            {add(of(lost(), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "lost"}), busy(10, 11)), illegal},

		"what was forgotten can be taken":                 {during(add(&record{}, ok("x", 1, 2, 1, 9, 0), ok("y", 5, 6, 2, 9, 10)), forget(3, 4)), linear},
		"only once that has happened":                     {during(add(&record{}, ok("x", 1, 2, 1, 9, 0), ok("y", 5, 6, 2, 9, 10)), forget(7, 8)), illegal},
		"and only once for each time":                     {during(add(&record{}, ok("x", 1, 2, 1, 19, 0), ok("y", 5, 6, 2, 19, 0), ok("z", 7, 8, 3, 19, 0)), forget(3, 4)), illegal},
		"a forgotten hold keeps no other out":             {during(add(&record{}, ok("x", 1, 2, 1, 30, 31), busy(21, 22)), forget(10, 11)), illegal},
		"a forgotten holder has nothing to release":       {during(add(of(ok("x", 1, 2, 1, 9, 10), call{"ask", 1, 2, "ok"}, call{"leave", 9, 10, "ok"}), ok("y", 5, 6, 2, 19, 20)), forget(3, 4)), illegal},
		"though a second attempt may look like a release": {during(add(of(ok("x", 1, 2, 1, 8, 10), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "unknown"}, call{"leave", 9, 10, "lost"}), ok("y", 5, 6, 2, 19, 20)), forget(3, 4)), linear},

		"a fail-over may bring back what was released":       {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), over(8, 10)), linear},
		"until that has expired too":                         {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late, late+1)), over(8, 10)), illegal},
		"what was not lost by it keeps others out":           {during(add(&record{}, ok("x", 1, 2, 1, 3*late, 3*late+1), busy(2*late, 2*late+1)), over(8, 10)), linear},
		"what was lost by it does not":                       {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}, call{"leave", 30, 31, "ok"}), ok("y", 11, 12, 2, 13, 14)), over(8, 10)), linear},
		"a hold can be forgotten and back and be extended":   {during(add(of(ok("x", 1, 2, 1, 3*late, 3*late+1), call{"ask", 1, 2, "ok"}, call{"leave", 3 * late, 3*late + 1, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(2*late, 2*late+1)), append(over(3, 4), over(9, 10)...)), linear},
		"until it is released":                               {during(add(of(ok("x", 1, 2, 1, 3*late, 3*late+1), call{"ask", 1, 2, "ok"}, call{"leave", 3 * late, 3*late + 1, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(3*late+2, 3*late+3)), append(over(3, 4), over(9, 10)...)), illegal},
		"a hold that a fail-over lost keeps no other out":    {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), busy(21, 22)), left()), illegal},
		"nor does one that it lost come back":                {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 11, 12, 2, 13, 14), busy(21, 22)), left()), illegal},
		"one that it kept does, and others may have it":      {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), busy(21, 22), ok("y", 25, 26, 2, 27, 28)), left("x")), linear},
		"even if it was forgotten before":                    {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(21, 22)), append(forget(3, 4), left("x")...)), linear},
		"until its release, even if it was forgotten":        {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(33, 34)), append(forget(3, 4), left("x")...)), illegal},
		"one that it brought back after its release expires": {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x")), linear},
		"and keeps no other out after that":                  {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late, late+1)), left("x")), illegal},
		"of one that was being released nothing is known":    {during(add(of(ok("x", 1, 2, 1, 9, 11), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x")), linear},
		"unless its release came too late for the old one":   {during(add(of(ok("x", 1, 2, 1, 10, 12), call{"ask", 1, 2, "ok"}), busy(14, 15)), left("x")), illegal},
		"nor of two": {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x", "z")), linear},
		"two at a time are told in a history that forgets too": {during(add(&record{}, ok("x", 11, 12, 1, 15, 16), ok("y", 13, 14, 2, 19, 20)), over(8, 10)), illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.record.linear(); got != c.want {
				t.Errorf("porcupine says %v, want %v", got, c.want)
			}
		})
	}
}
