package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// replay returns a scenario that compares the replay of an answered call with the call's
// first run.
func replay() scenario {
	return scenario{
		name: "replay", title: "replay of an idempotent answer",
		about: "One goroutine asks again for an answer of 1 KiB that is kept. One command in turn is one round trip. The first columns are of replays, those of \"first\" of runs that do nothing.",
		columns: append(cycleColumns(),
			Column{Key: "firstRate", Title: "first/s"}, Column{Key: "firstCommands", Title: "first commands", Digits: 2}),
		targets: []target{{who: "lockkit", key: "commands", limit: 1}},
		run: func(b *bench, s *Section) error {
			var stations []station
			for _, c := range contenders() {
				l, err := c.open(opening{addr: b.server.addr, conns: 2})
				if err != nil {
					return err
				}
				if l.once == nil {
					if err := l.close(); err != nil {
						return err
					}
					continue
				}
				stations = append(stations, station{contender: c, close: l.close, round: func(round int) (outcome, error) {
					return b.replayRound(c, l, fmt.Sprintf("%s:%d:", c.name, round))
				}})
			}
			return b.interleave(s, b.rounds, stations)
		},
	}
}

func (b *bench) replayRound(c contender, l *locks, key string) (outcome, error) {
	answer := make([]byte, 1024)
	ask := func(key func(i int) string) (map[string]float64, error) {
		before, err := b.server.work(b.ctx, c.direct)
		if err != nil {
			return nil, err
		}
		used, start := usedSoFar(), time.Now()
		for i := range b.replays {
			if err := l.once(context.Background(), key(i), answer); err != nil {
				return nil, err
			}
		}
		took, u := time.Since(start).Seconds(), usedSoFar().since(used)
		after, err := b.server.work(b.ctx, c.direct)
		return figures(float64(b.replays), took, after.since(before), u), err
	}
	// The first call connects and loads the scripts.
	if err := l.once(context.Background(), key+"kept", answer); err != nil {
		return outcome{}, err
	}
	first, err := ask(func(i int) string { return key + strconv.Itoa(i) })
	if err != nil {
		return outcome{}, err
	}
	f, err := ask(func(int) string { return key + "kept" })
	if err != nil {
		return outcome{}, err
	}
	f["firstRate"], f["firstCommands"] = first["rate"], first["commands"]
	return outcome{figures: f}, nil
}
