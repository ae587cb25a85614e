package hazards_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// span is an interval of the monotonic clock in which a holder relied on a key. It
// begins after Acquire has returned. It ends at the time of the last check that found
// the lease's context not done.
type span struct {
	Key, Who    string
	From, Until int64
	Token       uint64
}

// oracle judges a history of exclusive holds. No two holds of one key may overlap, and a
// later hold must have a greater token.
type oracle struct {
	mu    sync.Mutex
	spans []span
}

// newOracle returns an oracle that judges when the test ends. The test fails if there
// are fewer holds than the number least.
func newOracle(t *testing.T, least int) *oracle {
	o := &oracle{}
	t.Cleanup(func() {
		f := tally.Facts{Part: "processes", Runs: 1, Grants: o.len(), Violations: map[string]int{"overlaps": 0, "tokens back": 0}}
		for _, fault := range o.verdict() {
			t.Error(fault)
			if strings.Contains(fault, " has token ") {
				f.Violations["tokens back"]++
			} else {
				f.Violations["overlaps"]++
			}
		}
		f.ToOthers = o.toOthers()
		tally.Note(t, f)
		if n := o.len(); !t.Failed() && n < least {
			t.Errorf("test setup: %d holds, want at least %d", n, least)
		}
	})
	return o
}

func (o *oracle) add(s span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spans = append(o.spans, s)
}

func (o *oracle) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.spans)
}

// toOthers returns how often, in the order of spans, a key went to another holder than
// before.
func (o *oracle) toOthers() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := make(map[string]string) // by key
	for _, s := range o.spans {
		if who, ok := last[s.Key]; ok && who != s.Who {
			n++
		}
		last[s.Key] = s.Who
	}
	return n
}

func (o *oracle) verdict() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.SortFunc(o.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.From, b.From))
	})
	var faults []string
	var last span // the span of this key so far that ends last
	for _, s := range o.spans {
		if s.Until < s.From {
			continue // the holder never relied on the lease
		}
		if s.Key == last.Key && s.From <= last.Until {
			faults = append(faults, fmt.Sprintf("%s: %s holds from %d, while %s holds from %d until %d",
				s.Key, s.Who, s.From, last.Who, last.From, last.Until))
		}
		if s.Key == last.Key && s.Token <= last.Token {
			faults = append(faults, fmt.Sprintf("%s: %s has token %d, %s before it had %d", s.Key, s.Who, s.Token, last.Who, last.Token))
		}
		if s.Key != last.Key || s.Until > last.Until {
			last = s
		}
	}
	return faults
}

func TestOracle(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		spans  []span
		faults int
	}{
		{"consecutive holds", []span{{"a", "x", 1, 2, 1}, {"a", "y", 3, 4, 2}, {"b", "x", 1, 4, 9}}, 0},
		{"two holds at once", []span{{"a", "x", 1, 5, 1}, {"a", "y", 3, 4, 2}}, 1},
		{"long hold over two others", []span{{"a", "x", 1, 9, 1}, {"a", "y", 3, 4, 2}, {"a", "z", 6, 7, 3}}, 2},
		{"repeated token", []span{{"a", "x", 1, 2, 7}, {"a", "y", 3, 4, 7}}, 1},
		{"lease without use", []span{{"a", "x", 1, 5, 1}, {"a", "y", 3, 0, 2}}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := oracle{spans: c.spans}
			if got := o.verdict(); len(got) != c.faults {
				t.Errorf("got %q, want %d faults", got, c.faults)
			}
		})
	}
	t.Run("two processes without a lock", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		children := make([]*child, 2)
		for i := range children {
			children[i] = newChild(t, plan{Addr: server.Addr, Unlocked: true})
			children[i].send(order{Op: "loop", Key: "open", TTL: time.Minute, Hold: 20 * time.Millisecond})
		}
		testserver.Eventually(t, patience, "the oracle sees two at a time", func() bool {
			var o oracle
			for _, c := range children {
				for _, r := range c.all("hold") {
					o.add(r.Span)
				}
			}
			return len(o.verdict()) > 0
		})
	})
}
