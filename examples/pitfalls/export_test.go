package main

import (
	"context"
	"io"
	"slices"
)

// Run plays the scenes against the server at addr, or an embedded one, and
// returns the exit status.
func Run(ctx context.Context, out io.Writer, addr string) (int, error) {
	return run(ctx, out, addr, scenes)
}

// RunSwapped has the naive side played as the kit's, and the other way round.
func RunSwapped(ctx context.Context, out io.Writer, addr string) (int, error) {
	swapped := slices.Clone(scenes)
	for i := range swapped {
		swapped[i].naive, swapped[i].kit = swapped[i].kit, swapped[i].naive
	}
	return run(ctx, out, addr, swapped)
}

// RunFake plays one scene without a lock, in which each side fails if told so.
// If broken, the naive side cannot be played.
func RunFake(ctx context.Context, out io.Writer, naiveFails, kitFails, broken bool) (int, error) {
	part := func(fails, broken bool) side {
		return side{"a fake", func(ctx context.Context, s *stage) {
			need(!broken, "on purpose")
			if fails {
				s.note("somebody")
			}
		}}
	}
	return run(ctx, out, "", []scene{{
		title: "a fake", naive: part(naiveFails, broken), kit: part(kitFails, false),
		verdict: func(ctx context.Context, s *stage) (bool, string) {
			return must(s.redis.SCard(ctx, s.inside).Result()) > 0, ""
		},
	}})
}

// Titles are the headings of the scenes, in order.
func Titles() (titles []string) {
	for _, s := range scenes {
		titles = append(titles, s.title)
	}
	return titles
}
