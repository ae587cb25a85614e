package main

import (
	"context"
	"fmt"
	"time"
)

// growth returns a scenario with an increasing number of waiting clients on one key.
// Each client stands for a process.
func growth(sc scale) scenario {
	least, most := sc.growth[0], sc.growth[len(sc.growth)-1]
	s := scenario{
		name: "growth", title: fmt.Sprintf("%d to %d waiting clients, one key", least, most),
		about: "Every client stands for a process, with one goroutine that acquires, works for 1 ms, and releases. Figures are commands per grant with so many clients; growth is the last to the first.",
	}
	for _, n := range sc.growth {
		s.columns = append(s.columns, Column{Key: growthKey(n), Title: fmt.Sprintf("with %d", n), Digits: 2, Better: Less, Ratio: n == most})
	}
	s.columns = append(s.columns,
		Column{Key: "growth", Title: "growth", Digits: 2},
		Column{Key: "rate", Title: fmt.Sprintf("grants/s with %d", most), Better: More, Ratio: true})
	s.targets = []target{{who: "lockkit", key: "growth", limit: 1.1, why: polls}}
	s.run = func(b *bench, s *Section) error {
		return b.interleave(s, (b.rounds+2)/3, waitingStations(func(c contender) func(int) (outcome, error) {
			return func(round int) (outcome, error) { return b.growthRound(c, round) }
		}))
	}
	return s
}

func growthKey(n int) string { return fmt.Sprintf("with%d", n) }

func (b *bench) growthRound(c contender, round int) (outcome, error) {
	o := outcome{figures: map[string]float64{}}
	for _, n := range b.growth {
		// If the machine stands still, a short window may have no cycles.
		for try := range 10 {
			if err := context.Cause(b.ctx); err != nil {
				return o, err
			}
			t, w, err := b.grow(c, n, fmt.Sprintf("growth:%s:%d:%d:%d", c.name, round, n, try))
			if err != nil {
				return o, err
			}
			o.add(t)
			if grants := t.total(); grants > 0 {
				o.figures[growthKey(n)] = w.Commands / grants
				o.figures["rate"] = grants / t.Took
				break
			}
		}
	}
	first := o.figures[growthKey(b.growth[0])]
	if last, ok := o.figures[growthKey(b.growth[len(b.growth)-1])]; ok && first > 0 {
		o.figures["growth"] = last / first
	}
	return o, nil
}

func (b *bench) grow(c contender, n int, key string) (counts, work, error) {
	clients := make([]*locks, 0, n)
	defer func() {
		for _, l := range clients {
			_ = l.close()
		}
	}()
	door := newGate()
	for i := range n {
		l, err := c.open(opening{addr: b.server.addr, conns: 2, small: true})
		if err != nil {
			return counts{}, work{}, err
		}
		clients = append(clients, l)
		// The measurement does not include connecting and loading scripts.
		held, err := l.try(b.ctx, fmt.Sprintf("%s:warm:%d", key, i))
		if err != nil {
			return counts{}, work{}, err
		}
		if err := held.Release(b.ctx); err != nil {
			return counts{}, work{}, err
		}
	}
	var marks []work
	t, err := load{
		goroutines: n, key: func(int) string { return key }, gate: func(int) gate { return door },
		get:  func(g int) acquirer { return clients[g].acquire },
		hold: time.Millisecond, warm: b.window + time.Duration(n)*3*time.Millisecond, window: 2 * b.window, cancelable: true,
		mark: func() error {
			w, err := b.server.work(b.ctx, c.direct)
			marks = append(marks, w)
			return err
		},
	}.run(b.ctx)
	if err != nil {
		return t, work{}, err
	}
	return t, marks[1].since(marks[0]), nil
}
