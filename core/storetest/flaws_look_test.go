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

var lookFlaws = []flaw{
	{"acquires in Look", []string{
		"look/look at a free key",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, key)
			_, _ = s.Store.Acquire(ctx, store.Claim{Key: key, Owner: "op", Lease: "op", Weight: store.All, Limit: store.All, TTL: time.Hour})
			return state, err
		}
	}},
	{"shows no holds", []string{
		"look/hold shown in every process",
		"look/readers are shown with their weight",
		"look/nested holds are shown",
		"list/list has every key",
	}, showing(func(_ *tampered, state *store.State) { state.Holds = nil })},
	{"shows one hold of several", []string{
		"look/readers are shown with their weight",
		"look/permits are shown with their weight",
		"look/nested holds are shown",
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
	{"shows holds that are gone", []string{
		"look/released hold is not shown",
		"look/expired hold is not shown",
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
	{"shows the TTL as Left", []string{
		"look/Left grows with an extension",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			state.Holds[i].Left = time.Second
		}
	})},
	{"counts Age from the last extension", []string{
		"look/Age counts from the grant",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			state.Holds[i].Age = 1
		}
	})},
	{"shows an ID of kept keys", []string{
		"look/kept key shows no ID",
		"revoke/release of a revoked hold",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			if state.Holds[i].ID == "" {
				state.Holds[i].ID = "kept"
			}
		}
	})},
	{"shows no waiters", []string{
		"look/waiters are shown in their order",
		"look/unfair waiter is shown",
	}, showing(func(_ *tampered, state *store.State) { state.Waiters = nil })},
	{"shows waiters in another order", []string{
		"look/waiters are shown in their order",
	}, showing(func(_ *tampered, state *store.State) { slices.Reverse(state.Waiters) })},
	{"shows waiters that are gone", []string{
		"look/forgotten waiter is not shown",
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
		"look/run shown with its attempt",
		"revoke/revoked run is counted",
	}, showing(func(_ *tampered, state *store.State) {
		if state.Run != nil {
			state.Run.Attempt = 1
		}
	})},
	{"shows no run as finished", []string{
		"look/run shown with its attempt",
		"list/stored answer is listed",
	}, showing(func(_ *tampered, state *store.State) {
		if state.Run != nil {
			state.Run.Done = false
		}
	})},
	{"shows no processes", []string{
		"look/process of holders and waiters",
		"look/process of a joined hold",
		"list/list has every key",
	}, showing(func(_ *tampered, state *store.State) {
		for _, list := range [][]store.Hold{state.Holds, state.Waiters} {
			for i := range list {
				list[i].Process = ""
			}
		}
	})},
	{"shows one process for all", []string{
		"look/process of holders and waiters",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Waiters {
			state.Waiters[i].Process = state.Holds[0].Process
		}
	})},
	{"shows the process of the owner", []string{
		"look/process of a joined hold",
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
	{"shows a process of every lease", []string{
		"look/lease without a process",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].Process = c.Lease[:min(8, len(c.Lease))]
			}
		})(s)
	}},
	{"shows more than the process", []string{
		"look/secrets stay hidden",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].Process = c.Lease[:min(16, len(c.Lease))]
			}
		})(s)
	}},
	{"shows a process of kept keys", []string{
		"look/kept key shows no ID",
	}, showing(func(_ *tampered, state *store.State) {
		for i := range state.Holds {
			if state.Holds[i].ID == "" {
				state.Holds[i].Process = "ABCDEFGH"
			}
		}
	})},
	{"shows leases", []string{
		"look/secrets stay hidden",
	}, func(s *tampered) {
		s.acquire = s.acquireNoted
		showing(func(s *tampered, state *store.State) {
			if c, ok := s.noted(state.Key); ok && len(state.Holds) > 0 {
				state.Holds[0].ID = c.Lease
			}
		})(s)
	}},
	{"shows keys without unusual characters", []string{
		"look/unusual keys are shown",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			state, err := s.Store.Look(ctx, strings.ReplaceAll(key, "%", ""))
			state.Key = key
			return state, err
		}
	}},
	{"lists keys without unusual characters", []string{
		"list/unusual keys listed and revoked",
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
	{"shows with a done context", []string{
		"look/done context shows and revokes nothing",
	}, func(s *tampered) {
		s.look = func(ctx context.Context, key string) (store.State, error) {
			return s.Store.Look(context.WithoutCancel(ctx), key)
		}
	}},
	{"revokes with a done context", []string{
		"look/done context shows and revokes nothing",
	}, func(s *tampered) {
		s.revoke = func(ctx context.Context, key, hold string, keep time.Duration) error {
			_ = s.Store.Revoke(context.WithoutCancel(ctx), key, hold, keep)
			return s.Store.Revoke(ctx, key, hold, keep)
		}
	}},
	{"omits first keys of pages", []string{
		"list/list has every key",
		"list/list while keys come and go",
		"list/stored answer is listed",
	}, func(s *tampered) {
		s.list = func(ctx context.Context, after string, most int) ([]store.State, string, error) {
			page, next, err := s.Store.List(ctx, after, most)
			return page[min(1, len(page)):], next, err
		}
	}},
}
