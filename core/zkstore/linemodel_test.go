package zkstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/zkstore"
)

type modelled struct {
	name          string
	owner, lease  string
	kept          bool
	weight, limit int64
	place, number int32
	held          bool // it was held at some time
}

// TestLineModel adds and deletes nodes in random order. A held node stays held until it
// is deleted, however the queue changes. Nothing is admitted beyond its limit.
func TestLineModel(t *testing.T) {
	t.Parallel()
	granted, joined := 0, 0
	for seed := range uint64(tally.Trials(20_000)) {
		random := rand.New(rand.NewPCG(seed, 0))
		limits := [][]int64{{store.All}, {5}, {5, 8}, {3, store.All}}[random.IntN(4)]
		number := int32(random.Uint32()) // numbers wrap around
		var line []*modelled
		ids := 0
		add := func(kind byte, n modelled) *modelled {
			n.number = number
			number++
			ids++
			if kind == 'h' {
				n.place = n.number
			}
			n.name = fmt.Sprintf("%c.%s.%s.%s.%s.nonce%d.", kind, strconv.FormatInt(n.weight, 36), strconv.FormatInt(n.limit, 36), n.owner, n.lease, ids)
			if kind != 'h' {
				n.name += fmt.Sprintf("%d.zz.", n.place)
			}
			n.name += fmt.Sprintf("%010d", n.number)
			line = append(line, &n)
			return &n
		}
		look := func() map[string]bool {
			var names []string
			for _, n := range line {
				names = append(names, n.name)
			}
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			return zkstore.Admitted(names)
		}
		for step := range 40 {
			var m *modelled
			if len(line) > 0 {
				m = line[random.IntN(len(line))]
			}
			drop := func(lease string) {
				line = slices.DeleteFunc(line, func(n *modelled) bool { return !n.kept && n.lease == lease })
			}
			switch what := random.IntN(10); {
			case m == nil || what < 4:
				limit := limits[random.IntN(len(limits))]
				weight := 1 + random.Int64N(min(limit, 5))
				if limit == store.All { // readers and writers
					weight = []int64{1, limit}[random.IntN(2)]
				}
				ids++
				add('h', modelled{owner: "o" + strconv.Itoa(ids), lease: "l" + strconv.Itoa(ids), weight: weight, limit: limit})
			case what < 6 && m.held && !m.kept && len(limits) == 1 && m.limit == store.All:
				// This is a further hold. The model has none for permits.
				n := *m
				n.lease, n.held, n.weight = "l"+strconv.Itoa(ids), false, []int64{1, m.weight}[random.IntN(2)]
				r := add('r', n)
				if !look()[r.name] {
					line = line[:len(line)-1]
				} else {
					joined++
				}
			case what < 7 && !m.kept: // another session extends it
				n := *m
				n.held = false
				if m.name[0] == 'r' {
					add('r', n)
				} else {
					add('p', n)
				}
			case what < 8 && m.held && !m.kept: // released with KeepFor
				n := *m
				n.owner, n.kept, n.held = "-", true, false
				drop(m.lease)
				add('k', n)
			case what < 9: // a session expires
				line = slices.DeleteFunc(line, func(n *modelled) bool { return n == m })
			case !m.kept:
				drop(m.lease)
			}
			held := look()
			var fresh []*modelled
			for _, n := range line {
				switch {
				case n.held && !held[n.name]:
					t.Fatalf("seed %d, step %d: %s is held no more", seed, step, n.name)
				case !n.held && held[n.name]:
					fresh = append(fresh, n)
				}
			}
			slices.SortFunc(fresh, func(a, b *modelled) int {
				return int(max(-1, min(1, int64(a.place-b.place)*2+int64(max(-1, min(1, a.number-b.number))))))
			})
			for _, n := range fresh {
				n.held = true
				if n.kept || slices.ContainsFunc(line, func(m *modelled) bool { return m != n && m.held && m.lease == n.lease && !m.kept }) {
					continue // another node of the same hold
				}
				granted++
				sum, seen := n.weight, map[string]bool{}
				for _, m := range line {
					if m.held && m.owner != n.owner && (m.kept || !seen[m.lease]) {
						sum += m.weight
						if !m.kept {
							seen[m.lease] = true
						}
					}
				}
				if sum > n.limit {
					t.Fatalf("seed %d, step %d: %s is held beside others, %d of %d", seed, step, n.name, sum, n.limit)
				}
			}
		}
	}
	if n := tally.Trials(20_000); granted < 3*n || joined < n/4 {
		t.Errorf("test setup: got %d grants and %d re-entries", granted, joined)
	}
	t.Logf("%d were granted, %d entered again", granted, joined)
}
