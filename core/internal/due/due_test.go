package due_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/due"
)

func TestQueue_Order(t *testing.T) {
	t.Parallel()
	type value struct {
		at    time.Duration
		entry *due.Entry[value]
	}
	var q due.Queue[value]
	var in []*value // the expected content of the queue
	q.Remove(nil)
	for step := range 10_000 {
		switch {
		case len(in) == 0 || rand.N(1000) < 500+200*(1-2*(step/1000%2)): // grows, then shrinks
			v := &value{at: rand.N(time.Hour)}
			v.entry = q.Add(v.at, v)
			in = append(in, v)
		case rand.N(2) == 0:
			i := rand.N(len(in))
			q.Remove(in[i].entry)
			in = slices.Delete(in, i, i+1)
		default:
			at, v := q.First()
			i := slices.Index(in, v)
			if i < 0 || at != v.at {
				t.Fatalf("step %d: first is %v at %v, which is not in", step, v, at)
			}
			if least := slices.MinFunc(in, func(a, b *value) int { return int(a.at - b.at) }); least.at < at {
				t.Fatalf("step %d: first is due at %v, want %v", step, at, least.at)
			}
			q.Remove(v.entry)
			in = slices.Delete(in, i, i+1)
		}
		if q.Len() != len(in) {
			t.Fatalf("step %d: %d values, want %d", step, q.Len(), len(in))
		}
		if all := q.All(); step%100 == 0 && (len(all) != len(in) || slices.ContainsFunc(in, func(v *value) bool { return !slices.Contains(all, v) })) {
			t.Fatalf("step %d: all are %v, want %v", step, all, in)
		}
	}
	for _, v := range in {
		q.Remove(v.entry)
	}
	if _, v := q.First(); v != nil || q.Len() != 0 {
		t.Errorf("an empty queue has %d values, the first %v", q.Len(), v)
	}
}

func TestQueue_Allocations(t *testing.T) {
	var q due.Queue[int]
	v := new(int)
	at := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() {
		at++
		q.Remove(q.Add(at, v))
		e := q.Add(at, v)
		q.First()
		q.Remove(e)
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
