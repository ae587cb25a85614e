package zkstore_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/zkstore"
)

// child returns the full name of a node, with the number that the server appends.
func child(owner string, weight, limit int64, number int32) string {
	return fmt.Sprintf("h.%s.%s.%s.lease-%s.nonce.%010d", strconv.FormatInt(weight, 36), strconv.FormatInt(limit, 36), owner, owner, number)
}

func TestLine(t *testing.T) {
	t.Parallel()
	const all = store.All
	for _, c := range []struct {
		name  string
		nodes []string
		held  []bool
	}{
		{"the first has the key", []string{child("a", all, all, 3), child("b", all, all, 7)}, []bool{true, false}},
		{"order of the listing", []string{child("b", all, all, 7), child("a", all, all, 3)}, []bool{false, true}},
		{
			"numbers wrap around", // the number after the highest is negative
			[]string{child("c", all, all, math.MinInt32), child("a", all, all, math.MaxInt32-1), child("b", all, all, math.MaxInt32)},
			[]bool{false, true, false},
		},
		{"numbers below zero", []string{child("b", all, all, 0), child("a", all, all, -1)}, []bool{false, true}},
		{
			"readers up to the first writer",
			[]string{child("a", 1, all, 1), child("b", 1, all, 2), child("c", all, all, 3), child("d", 1, all, 4)},
			[]bool{true, true, false, false},
		},
		{
			"light claim behind a heavy one",
			[]string{child("a", 3, 5, 1), child("b", 3, 5, 2), child("c", 1, 100, 3)},
			[]bool{true, false, false},
		},
		{
			"further hold at its place",
			[]string{
				child("a", all, all, 1), child("b", all, all, 2),
				"r." + strconv.FormatInt(all, 36) + "." + strconv.FormatInt(all, 36) + ".a.more.nonce.1.zz.0000000003",
			},
			[]bool{true, false, true},
		},
		{
			"further hold without the first",
			[]string{
				child("b", all, all, 2),
				"r." + strconv.FormatInt(all, 36) + "." + strconv.FormatInt(all, 36) + ".a.more.nonce.1.zz.0000000003",
			},
			[]bool{false, true},
		},
		{
			"light claim behind a copy",
			[]string{child("b", 2, 3, 1), "p.3.3.a.lease-a.nonce.2.zz.0000000004", child("c", 1, all, 5)},
			[]bool{true, false, false},
		},
		{
			// A caller that re-entered for reading and for writing has both holds.
			"reader and writer without first hold",
			[]string{
				"r.1." + strconv.FormatInt(all, 36) + ".a.read.nonce.1.zz.0000000003", child("d", 1, all, 4),
				"r." + strconv.FormatInt(all, 36) + "." + strconv.FormatInt(all, 36) + ".a.write.nonce.1.zz.0000000005",
			},
			[]bool{true, false, true},
		},
		{
			"owner that asked twice at once",
			[]string{
				child("a", all, all, 1),
				"h." + strconv.FormatInt(all, 36) + "." + strconv.FormatInt(all, 36) + ".a.more.nonce.0000000002",
				child("b", all, all, 3),
			},
			[]bool{true, true, false},
		},
		{"nodes of others", []string{"lock-0000000000", "h.x", child("a", all, all, 1)}, []bool{false, false, true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			held := zkstore.Admitted(c.nodes)
			for i, n := range c.nodes {
				if held[n] != c.held[i] {
					t.Errorf("%s is held: %v, want %v", n, held[n], c.held[i])
				}
			}
		})
	}
}

func FuzzNames(f *testing.F) {
	f.Add("h.1.1.a.b.c.0000000001")
	f.Add("r.1.1.a.b.c.1.1.-2147483648")
	f.Add("k.zzzzzzzzzzzzzzzzz.1.a.b.c.1.1.9999999999")
	f.Add("m.")
	f.Fuzz(func(_ *testing.T, name string) {
		zkstore.Parse(name) // other programs may use any name
		zkstore.Admitted([]string{name, name + "0", "h.1.1.a.b.c.0000000001"})
	})
}

// FuzzNotes checks that an operator's view can read any data, because other programs may
// have written it.
func FuzzNotes(f *testing.F) {
	f.Add([]byte("30000"), int64(0))
	f.Add([]byte("10000 w30000"), int64(5000))
	f.Add([]byte("30000 a1200"), int64(-1))
	f.Add([]byte("9223372036854775807 a-1"), int64(1)<<62)
	f.Add([]byte("10000\n{}"), int64(1))
	f.Fuzz(func(t *testing.T, text []byte, ms int64) {
		const century = 100 * 365 * 24 * time.Hour
		since := time.Duration(ms%century.Milliseconds()) * time.Millisecond
		left, again := zkstore.NoteOf(text, since)
		if left < 0 || left > century {
			t.Errorf("%q has %v left", text, left)
		}
		if same, _ := zkstore.NoteOf(again, since); same != left {
			t.Errorf("%q has %v left, and %q, which is the same, %v", text, left, again, same)
		}
		if c, ok := zkstore.CardOf(text, since); ok && c.Process != "AAAAAAAA" {
			t.Errorf("%q is a card of %q", text, c.Process)
		}
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("order:42", "order%3A42")
	f.Add("a/b", "a%2Fb")
	f.Add(".", "..")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := zkstore.Escape(a), zkstore.Escape(b)
		if x == y && a != b {
			t.Errorf("%q and %q have the same node %q", a, b, x)
		}
		if a != "" && (strings.Contains(x, "/") || x == "." || x == ".." || !utf8.ValidString(x)) {
			t.Errorf("%q has the node %q", a, x)
		}
	})
}

// TestLineOfTwoLimits checks that claims of two limits in one queue are admitted, and
// that the decision does not take exponential time. A deploy that changes the number of
// permits causes such queues for a while.
func TestLineOfTwoLimits(t *testing.T) {
	t.Parallel()
	var nodes []string
	for i := range 60 {
		nodes = append(nodes, child("o"+strconv.Itoa(i), 1, 100+int64(i%2)*100, int32(i)))
	}
	done := make(chan map[string]bool, 1)
	go func() { done <- zkstore.Admitted(nodes) }()
	select {
	case held := <-done:
		for _, n := range nodes {
			if !held[n] {
				t.Errorf("%s is not held, and there is room", n)
			}
		}
	case <-time.After(patience):
		t.Fatal("the queue of sixty is still being looked at")
	}
}

// TestNamesBeyondMeasure checks that names with impossible weights or limits are
// ignored. Such a weight in a sum could admit two claims, or lock the key by mistake.
func TestNamesBeyondMeasure(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		child("a", -store.All, store.All, 1), child("a", 0, store.All, 1), child("a", math.MaxInt64, store.All, 1),
		child("a", 1, 0, 1), child("a", 1, -1, 1), child("a", 1, math.MaxInt64, 1),
	} {
		if zkstore.Parse(name) {
			t.Errorf("%s counts, which no store has created", name)
		}
	}
}
