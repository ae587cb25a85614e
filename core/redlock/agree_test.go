package redlock_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/store"
)

// FuzzAgreement checks that a hold is shown if and only if a majority has it, whatever
// the nodes show. It also checks that a majority has the hold with at least the shown
// Left, and a majority with at least the shown Age.
func FuzzAgreement(f *testing.F) {
	f.Add(uint8(3), []byte("a1\x10\x20|a1\x08\x30|b1\x10\x20"))
	f.Add(uint8(5), []byte("a1\x10\x20a1\x08\x30|a1\x01\x01a1\x02\x02|a1\x09\x09"))
	f.Add(uint8(3), []byte(" 1\x10\x20 2\x10\x20| 1\x10\x20|a1\x10\x20"))
	f.Add(uint8(1), []byte("a1\xff\xff"))
	f.Fuzz(func(t *testing.T, size uint8, text []byte) {
		n := int(size%9) + 1
		quorum := n/2 + 1
		// Four bytes encode a hold: its ID, weight, remaining time and age. '|' begins
		// the list of the next node.
		lists := make([][]store.Hold, 1, n)
		for len(text) > 0 {
			if text[0] == '|' {
				if text = text[1:]; len(lists) == n {
					break
				}
				lists = append(lists, nil)
				continue
			}
			if len(text) < 4 {
				break
			}
			h := store.Hold{Weight: int64(text[1]%3) + 1, Left: time.Duration(text[2]) * time.Second, Age: time.Duration(text[3]) * time.Second}
			if text[0] != ' ' {
				h.ID = string('a' + text[0]%3)
			}
			if text[2] == 0xff {
				h.Left = math.MaxInt64
			}
			lists[len(lists)-1] = append(lists[len(lists)-1], h)
			text = text[4:]
		}
		var states []store.State
		for _, list := range lists {
			states = append(states, store.State{Key: "another", Holds: list, Waiters: list, Run: &store.Run{Attempt: 1}})
		}
		got := redlock.Agreed(n, "key", states)
		if got.Key != "key" || got.Run != nil || !slices.Equal(got.Holds, got.Waiters) {
			t.Fatalf("got %+v", got)
		}
		type name struct {
			id     string
			weight int64
		}
		shown := make(map[name]int)
		for _, h := range got.Holds {
			of := name{h.ID, h.Weight}
			shown[of]++
			longer, older := 0, 0
			for _, list := range lists {
				same := func(o store.Hold) bool { return name{o.ID, o.Weight} == of }
				if slices.ContainsFunc(list, func(o store.Hold) bool { return same(o) && o.Left >= h.Left }) {
					longer++
				}
				if slices.ContainsFunc(list, func(o store.Hold) bool { return same(o) && o.Age >= h.Age }) {
					older++
				}
			}
			if longer < quorum || older < quorum {
				t.Errorf("%+v is shown of %v, and %d of %d nodes have it for so long, %d since then", h, lists, longer, n, older)
			}
		}
		for id := range 4 {
			for weight := range int64(3) {
				of := name{"", weight + 1}
				if id > 0 {
					of.id = string(rune('a' + id - 1))
				}
				counts := make([]int, n)
				for i, list := range lists {
					for _, h := range list {
						if (name{h.ID, h.Weight}) == of {
							counts[i]++
						}
					}
				}
				slices.Sort(counts)
				if want := counts[n-quorum]; shown[of] != want {
					t.Errorf("%d of %+v are shown of %v, want %d, as many as a majority has", shown[of], of, lists, want)
				}
			}
		}
	})
}

// FuzzCursor checks that any text is either refused as a cursor or read as a valid
// position.
func FuzzCursor(f *testing.F) {
	f.Add(uint8(3), "1 0 1700000000000 17")
	f.Add(uint8(3), "2 9223372036854775807 1 ")
	f.Add(uint8(1), "0 0 -9223372036854775808 a b c")
	f.Add(uint8(1), "-1 +0 x")
	f.Fuzz(func(t *testing.T, size uint8, text string) {
		n := int(size%9) + 1
		node, failed, after, err := redlock.Cursor(n, text)
		switch {
		case err != nil:
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: got %v, want %v", text, err, store.ErrInvalid)
			}
		case node < 0 || node >= n || failed < 0 || failed > node || len(after) > len(text):
			t.Errorf("%q of %d nodes is read as %s", text, n, fmt.Sprint(node, failed, after))
		}
	})
}
