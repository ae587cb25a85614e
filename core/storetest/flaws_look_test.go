package storetest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// showing returns a flaw: Look and List apply change to the states of the sound store.
func showing(change func(s *tampered, state *store.State)) func(s *tampered) {
	return func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, key)
			change(s, &state)
			return state, err
		}
		s.list = func(ctx context.Context, after string, most int) ([]store.State, string, error) {
			page, next, err := s.Store.List(ctx, after, most)
			for i := range page {
				change(s, &page[i])
			}
			return page, next, err
		}
	}
}

// lookFlaws lists flaws of Look and List.
var lookFlaws = []flaw{
	{"takes the key that it looks at", []string{
		"look/a key that is free shows nothing, and stays free",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, key)
			_, _ = s.Store.Acquire(ctx, store.Claim{Key: key, Owner: "op", Lease: "op", Weight: store.All, Limit: store.All, TTL: time.Hour})
			return state, err
		}
	}},
	{"shows no holds", []string{
		"look/a hold is shown in every process",
		"look/readers are shown with their weight",
		"look/each hold of an owner is shown",
		"list/every key is on one of the pages",
	}, showing(func(_ *tampered, state *store.State) { state.Holds = nil })},
	{"shows one hold of several", []string{
		"look/readers are shown with their weight",
		"look/permits are shown with their weight",
		"look/each hold of an owner is shown",
	}, showing(func(_ *tampered, state *store.State) {
		state.Holds = state.Holds[:min(1, len(state.Holds))]
	})},
	{"shows every hold as exclusive", []string{
		"look/readers are shown with their weight",
		"look/permits are shown with their weight",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			state.Holds[i].Weight = store.All
		}
	})},
	{"shows what has ended", []string{
		"look/what was released is not shown",
		"look/what has expired is not shown",
	}, func(s *tampered) {
		var last store.State
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, key)
			if len(state.Holds) == 0 {
				state.Holds = last.Holds
			}
			return state, err
		}
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			last, _ = s.Store.Look(ctx, c.Key)
			return g, err
		}
	}},
	{"shows all of the TTL as what is left", []string{
		"look/what a hold has left is told, and grows when it is extended",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			state.Holds[i].Left = time.Second
		}
	})},
	{"tells the time since the last extension as the age", []string{
		"look/the age of a hold, if it is told, is that of its grant",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			state.Holds[i].Age = 1
		}
	})},
	{"shows an ID of what is kept", []string{
		"look/what is kept is shown without an ID",
		"revoke/a revoked hold cannot be released, nor what it has left",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			if state.Holds[i].ID == "" {
				state.Holds[i].ID = "kept"
			}
		}
	})},
	{"shows no waiters", []string{
		"look/waiters are shown in their order",
		"look/a waiter that is not fair is shown",
	}, showing(func(_ *tampered, state *store.State) { state.Waiters = nil })},
	{"shows waiters in the order of their IDs, or another", []string{
		"look/waiters are shown in their order",
	}, showing(func(_ *tampered, state *store.State) { slices.Reverse(state.Waiters) })},
	{"shows waiters that are gone", []string{
		"look/a waiter that does not ask again is shown no longer than it is remembered",
	}, func(s *tampered) {
		var last []store.Hold
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, c)
			if c.Wait {
				state, _ := s.Store.Look(ctx, c.Key)
				last = state.Waiters
			}
			return g, err
		}
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, key)
			state.Waiters = last
			return state, err
		}
	}},
	{"shows every run as the first", []string{
		"look/a run is shown with its attempt, and its end",
		"revoke/a run that was revoked stays counted, and its answer comes too late",
	}, showing(func(_ *tampered, state *store.State) {
		if state.Run != nil {
			state.Run.Attempt = 1
		}
	})},
	{"shows no run as finished", []string{
		"look/a run is shown with its attempt, and its end",
		"list/a kept answer is listed",
	}, showing(func(_ *tampered, state *store.State) {
		if state.Run != nil {
			state.Run.Done = false
		}
	})},
	{"shows no processes", []string{
		"look/holders and waiters show the process of their claim",
		"look/a hold of one owner in another process shows that process",
		"list/every key is on one of the pages",
	}, showing(func(_ *tampered, state *store.State) {
		for _, list := range [][]store.Hold{state.Holds, state.Waiters} {
			for i := range list {
				list[i].Process = ""
			}
		}
	})},
	{"shows one process for all", []string{
		"look/holders and waiters show the process of their claim",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Waiters {
			state.Waiters[i].Process = state.Holds[0].Process
		}
	})},
	{"shows the process of the owner", []string{
		"look/a hold of one owner in another process shows that process",
	}, func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			if _, ok := s.noted(c.Key); !ok {
				s.note(c.Key, c)
			}
			return s.Store.Acquire(ctx, c)
		}
		showing(func(s *tampered, state *store.State) {
			first, _ := s.noted(state.Key)
			for i := range state.Holds {
				state.Holds[i].Process = store.ProcessOf(first.Lease)
			}
		})(s)
	}},
	{"shows the beginning of every lease as a process", []string{
		"look/a lease that no Locker has named shows nothing of it",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].Process = c.Lease[:min(8, len(c.Lease))]
			}
		})(s)
	}},
	{"shows more of a lease than its process", []string{
		"look/neither an owner, a lease nor a value is shown",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].Process = c.Lease[:min(16, len(c.Lease))]
			}
		})(s)
	}},
	{"shows a process of what is kept", []string{
		"look/what is kept is shown without an ID",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			if state.Holds[i].ID == "" {
				state.Holds[i].Process = "ABCDEFGH"
			}
		}
	})},
	{"shows leases", []string{
		"look/neither an owner, a lease nor a value is shown",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].ID = c.Lease
			}
		})(s)
	}},
	{"shows a key without what is hard to write", []string{
		"look/a key that is hard to write is shown",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, strings.ReplaceAll(key, "%", ""))
			state.Key = key
			return state, err
		}
	}},
	{"lists a key without what is hard to write", []string{
		"list/keys that are hard to write are listed as they are, and their holds revoked",
	}, func(s *tampered) {
		s.list = func(ctx context.Context, after string, most int) ([]store.State, string, error) {
			page, next, err := s.Store.List(ctx, after, most)
			for i := range page {
				page[i].Key = strings.ToValidUTF8(strings.ReplaceAll(page[i].Key, "\u202e", ""), "")
			}
			return page, next, err
		}
	}},
	{"looks at any input", []string{
		"look/bad input is refused",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, _ := s.Store.Look(ctx, key)
			return state, nil
		}
	}},
	{"shows although the context has ended", []string{
		"look/an ended context shows nothing and revokes nothing",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			return s.Store.Look(context.WithoutCancel(ctx), key)
		}
	}},
	{"revokes although the context has ended", []string{
		"look/an ended context shows nothing and revokes nothing",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			_ = s.Store.Revoke(context.WithoutCancel(ctx), key, hold, keep)
			return s.Store.Revoke(ctx, key, hold, keep)
		}
	}},
	{"leaves out the first key of each page", []string{
		"list/every key is on one of the pages",
		"list/a walk sees what is there all the time, while keys come and go",
		"list/a kept answer is listed",
	}, func(s *tampered) {
		s.list = func(ctx context.Context, after string, most int) ([]store.State, string, error) {
			page, next, err := s.Store.List(ctx, after, most)
			return page[min(1, len(page)):], next, err
		}
	}},
}
