package main

import (
	"context"
	"io"
	"slices"
)

// Main runs the program.
func Main() { main() }

// Run plays the scenes on the server at addr, or on an embedded server if addr is "",
// and returns the exit code.
func Run(ctx context.Context, out io.Writer, addr string) (int, error) {
	return run(ctx, out, addr, scenes)
}

// RunSwapped plays the scenes with the naive and the kit's side exchanged.
func RunSwapped(ctx context.Context, out io.Writer, addr string) (int, error) {
	swapped := slices.Clone(scenes)
	for i := range swapped {
		swapped[i].naive, swapped[i].kit = swapped[i].kit, swapped[i].naive
	}
	return run(ctx, out, addr, swapped)
}

// RunFake plays one scene without a lock. A side fails if its parameter is true. If
// broken is true, the naive side cannot be played.
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

// Titles returns the titles of the scenes, in order.
func Titles() (titles []string) {
	for _, s := range scenes {
		titles = append(titles, s.title)
	}
	return titles
}
