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
	// left returns a fail-over that leaves the holds with these IDs.
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
		"dead process may hold":                {add(&record{}, died(), busy(21, 22)), linear},
		"dead process until expiry":            {during(add(&record{}, died(), busy(late-2, late-1)), kill), linear},
		"dead process after expiry":            {during(add(&record{}, died(), busy(late, late+1)), kill), illegal},
		"dead process before its last request": {during(add(of(died(), call{"ask", 6, 9, "busy"}), busy(6, 8)), kill), illegal},

		"unknown grant before its clean-up":  {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "lost"}), busy(7, 8)), linear},
		"unknown grant after its clean-up":   {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "lost"}), busy(11, 12)), illegal},
		"late request after a release":       {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "ok"}), busy(11, 12)), linear},
		"unknown grant and unknown clean-up": {add(of(failed(), call{"ask", 4, 5, "unknown"}, call{"leave", 9, 10, "unknown"}), busy(11, 12)), linear},
		"call without effect":                {add(of(failed(), call{"ask", 4, 5, "unchanged"}), busy(5, 6)), illegal},
		"call without effect then release":   {add(of(failed(), call{"ask", 4, 5, "unchanged"}, call{"leave", 5, 7, "ok"}), busy(5, 6)), illegal},
		"busy answer of the store":           {of(failed(), call{"ask", 4, 5, "busy"}), illegal},
		"grant to a caller that left":        {add(of(nil, call{"ask", 4, 5, "ok"}, call{"leave", 9, 10, "ok"}), busy(7, 8)), linear},
		"same grant after its release":       {add(of(nil, call{"ask", 4, 5, "ok"}, call{"leave", 9, 10, "ok"}), busy(11, 12)), illegal},
		"grant that came too late":           {add(of(ok("x", 3, 22, 2, 30, 31), call{"ask", 4, 5, "ok"}, call{"ask", 20, 21, "ok"}), ok("y", 10, 11, 1, 12, 13), busy(6, 7)), linear},
		"the grant that was used":            {add(of(ok("x", 3, 22, 1, 30, 31), call{"ask", 20, 21, "ok"}), busy(1, 2)), illegal},
		"late request after unknown ask":     {add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}), busy(12, 13)), linear},
		"late request after a lost release":  {add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}, call{"leave", 10, 11, "lost"}), busy(12, 13)), illegal},
		"lost release and server forgets":    {during(add(of(ok("x", 3, 7, 1, 8, 9), call{"ask", 3, 4, "unknown"}, call{"ask", 5, 6, "ok"}, call{"leave", 10, 11, "lost"}), busy(12, 13)), forget(11, 12)), linear},
		"lost hold before its clean-up":      {add(of(lost(), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "lost"}), busy(6, 8)), linear},
		"lost hold after its clean-up":       {add(of(lost(), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "lost"}), busy(10, 11)), illegal},

		"take a forgotten key":               {during(add(&record{}, ok("x", 1, 2, 1, 9, 0), ok("y", 5, 6, 2, 9, 10)), forget(3, 4)), linear},
		"take before it is forgotten":        {during(add(&record{}, ok("x", 1, 2, 1, 9, 0), ok("y", 5, 6, 2, 9, 10)), forget(7, 8)), illegal},
		"take twice after one loss":          {during(add(&record{}, ok("x", 1, 2, 1, 19, 0), ok("y", 5, 6, 2, 19, 0), ok("z", 7, 8, 3, 19, 0)), forget(3, 4)), illegal},
		"busy for a forgotten hold":          {during(add(&record{}, ok("x", 1, 2, 1, 30, 31), busy(21, 22)), forget(10, 11)), illegal},
		"forgotten holder releases":          {during(add(of(ok("x", 1, 2, 1, 9, 10), call{"ask", 1, 2, "ok"}, call{"leave", 9, 10, "ok"}), ok("y", 5, 6, 2, 19, 20)), forget(3, 4)), illegal},
		"second release of forgotten holder": {during(add(of(ok("x", 1, 2, 1, 8, 10), call{"ask", 1, 2, "ok"}, call{"leave", 8, 9, "unknown"}, call{"leave", 9, 10, "lost"}), ok("y", 5, 6, 2, 19, 20)), forget(3, 4)), linear},

		"fail-over revives a released hold":  {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), over(8, 10)), linear},
		"revived hold after expiry":          {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late, late+1)), over(8, 10)), illegal},
		"hold kept by a fail-over":           {during(add(&record{}, ok("x", 1, 2, 1, 3*late, 3*late+1), busy(2*late, 2*late+1)), over(8, 10)), linear},
		"hold lost by a fail-over":           {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}, call{"leave", 30, 31, "ok"}), ok("y", 11, 12, 2, 13, 14)), over(8, 10)), linear},
		"forgotten and revived and extended": {during(add(of(ok("x", 1, 2, 1, 3*late, 3*late+1), call{"ask", 1, 2, "ok"}, call{"leave", 3 * late, 3*late + 1, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(2*late, 2*late+1)), append(over(3, 4), over(9, 10)...)), linear},
		"forgotten and revived and released": {during(add(of(ok("x", 1, 2, 1, 3*late, 3*late+1), call{"ask", 1, 2, "ok"}, call{"leave", 3 * late, 3*late + 1, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(3*late+2, 3*late+3)), append(over(3, 4), over(9, 10)...)), illegal},
		"busy for a hold not left":           {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), busy(21, 22)), left()), illegal},
		"hold not left comes back":           {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 11, 12, 2, 13, 14), busy(21, 22)), left()), illegal},
		"hold left then taken":               {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), busy(21, 22), ok("y", 25, 26, 2, 27, 28)), left("x")), linear},
		"forgotten hold left":                {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(21, 22)), append(forget(3, 4), left("x")...)), linear},
		"forgotten hold left then released":  {during(add(of(ok("x", 1, 2, 1, 30, 31), call{"ask", 1, 2, "ok"}), ok("y", 5, 6, 2, 7, 8), busy(33, 34)), append(forget(3, 4), left("x")...)), illegal},
		"released hold left":                 {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x")), linear},
		"released hold left after expiry":    {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late, late+1)), left("x")), illegal},
		"left during its release":            {during(add(of(ok("x", 1, 2, 1, 9, 11), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x")), linear},
		"left before its release":            {during(add(of(ok("x", 1, 2, 1, 10, 12), call{"ask", 1, 2, "ok"}), busy(14, 15)), left("x")), illegal},
		"two holds left":                     {during(add(of(ok("x", 1, 2, 1, 3, 4), call{"ask", 1, 2, "ok"}), busy(late-2, late-1)), left("x", "z")), linear},
		"two at once despite a fail-over":    {during(add(&record{}, ok("x", 11, 12, 1, 15, 16), ok("y", 13, 14, 2, 19, 20)), over(8, 10)), illegal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.record.linear(); got != c.want {
				t.Errorf("porcupine says %v, want %v", got, c.want)
			}
		})
	}
}
