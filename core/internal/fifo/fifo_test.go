package fifo_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockkit/lockkit/core/internal/fifo"
)

type member struct{ place fifo.Node[member] }

func TestQueue_Order(t *testing.T) {
	t.Parallel()
	var q fifo.Queue[member]
	var in, out []*member // in order of arrival; members that have left may be pushed again
	for step := range 3_000 {
		if len(in) == 0 || rand.N(20) < 10+5*(1-2*(step/100%2)) {
			m := new(member)
			if len(out) > 0 {
				m, out = out[0], out[1:]
			}
			q.Push(&m.place, m)
			in = append(in, m)
		} else {
			i := rand.N(len(in))
			q.Remove(&in[i].place)
			out = append(out, in[i])
			in = slices.Delete(in, i, i+1)
		}
		var got []*member
		for m := q.First(); m != nil; m = m.place.Next() {
			got = append(got, m)
		}
		if !slices.Equal(got, in) || q.Len() != len(in) {
			t.Fatalf("step %d: %d members in another order, want %d", step, q.Len(), len(in))
		}
		for _, m := range out {
			if m.place.Queued() {
				t.Fatalf("step %d: one that has left is queued", step)
			}
		}
		if len(in) > 0 && !in[0].place.Queued() {
			t.Fatalf("step %d: the first is not queued", step)
		}
	}
}
