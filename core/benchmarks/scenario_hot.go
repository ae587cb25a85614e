package main

const hotGoroutines = 64

// hot returns a scenario with a key that many goroutines of one process want, on each
// store.
func hot() scenario {
	sc := scenario{
		name: "hot", title: "64 goroutines, one key, on each store",
		about: "Acquire, an empty critical section, release, again: one goroutine alone, and 64 that wait for each other. The servers are those of the scenario before.",
		columns: []Column{
			{Key: "one", Title: "one, cycles/s"},
			{Key: "many", Title: "64, cycles/s", Better: More},
			{Key: "times", Title: "64 to one", Digits: 1, Better: More},
		},
		run: func(b *bench, s *Section) error { return b.everywhere(s, b.hot) },
	}
	for _, who := range []string{"Redlock of three", "ZooKeeper", "PostgreSQL"} {
		sc.targets = append(sc.targets, target{who: who, key: "times", least: true, limit: 8})
	}
	return sc
}

func (b *bench) hot(l *locks, key string) (outcome, error) {
	var o outcome
	rate := func(goroutines int) (float64, error) {
		g := newGate()
		t, err := load{
			goroutines: goroutines, key: func(int) string { return key }, gate: func(int) gate { return g },
			get: func(int) acquirer { return l.acquire }, warm: b.window / 5, window: b.window, drain: b.drain, cancelable: true,
			mark: func() error { return nil },
		}.run(b.ctx)
		o.add(t)
		return t.total() / t.Took, err
	}
	one, err := rate(1)
	if err != nil {
		return o, err
	}
	many, err := rate(hotGoroutines)
	if err != nil {
		return o, err
	}
	o.figures = map[string]float64{"one": one, "many": many}
	if one > 0 { // with a slow store, a short window may have no complete cycle
		o.figures["times"] = many / one
	}
	return o, nil
}
