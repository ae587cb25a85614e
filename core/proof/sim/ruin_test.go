package sim_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// ruined is a store with one deliberate mistake.
type ruined struct {
	core.Store
	store.Watcher
	store.Prompt
	network *network
	acquire func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error)
	extend  func(r *ruined, ctx context.Context, claims []store.Claim) []store.Extension
	release func(r *ruined, ctx context.Context, c store.Claim) error
	n       atomic.Uint64
}

func (r *ruined) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if r.acquire == nil {
		return r.Store.Acquire(ctx, c)
	}
	return r.acquire(r, ctx, c)
}

func (r *ruined) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if r.extend == nil {
		return r.Store.Extend(ctx, claims)
	}
	return r.extend(r, ctx, claims)
}

func (r *ruined) Release(ctx context.Context, c store.Claim) error {
	if r.release == nil {
		return r.Store.Release(ctx, c)
	}
	return r.release(r, ctx, c)
}

// stored returns the names under which the server may store a key.
func stored(key string) []string { return []string{"lk2:{" + key + "}", "lk1:" + key} }

// retoken returns a store that changes the token of each grant.
func retoken(token func(r *ruined, g store.Grant) uint64) *ruined {
	return &ruined{acquire: func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error) {
		g, err := r.Store.Acquire(ctx, c)
		if err == nil && g.Token > 0 {
			g.Token = token(r, g)
		}
		return g, err
	}}
}

// in returns s with r's mistake.
func (r *ruined) in(n *network, s core.Store) core.Store {
	bad := &ruined{Store: s, network: n, acquire: r.acquire, extend: r.extend, release: r.release}
	bad.Watcher, _ = s.(store.Watcher)
	bad.Prompt, _ = s.(store.Prompt)
	return bad
}

// ruins are deliberate mistakes, each with the violation that the oracles must find.
var ruins = []struct {
	name string
	says string
	*ruined
}{
	// Each fifth claim that finds the key busy is admitted.
	{"busy claims are admitted", overlaps, &ruined{
		acquire: func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := r.Store.Acquire(ctx, c)
			if errors.Is(err, core.ErrBusy) && c.Record == nil && r.n.Add(1)%5 == 0 {
				return store.Grant{Owner: c.Owner, Token: uint64(time.Now().UnixMicro())}, nil
			}
			return g, err
		},
	}},
	{"release without compare", overlaps, &ruined{
		release: func(r *ruined, ctx context.Context, c store.Claim) error {
			if c.Record == nil {
				for _, name := range stored(c.Key) {
					r.network.server.Del(name)
				}
			}
			return r.Store.Release(ctx, c)
		},
	}},
	{"unknown extension counts", overlaps, &ruined{
		extend: func(r *ruined, ctx context.Context, claims []store.Claim) []store.Extension {
			answers := r.Store.Extend(ctx, claims)
			for i := range answers {
				if !errors.Is(answers[i].Err, core.ErrLost) {
					answers[i].Err = nil
				}
			}
			return answers
		},
	}},
	{"unknown acquire is a grant", overlaps, &ruined{
		acquire: func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := r.Store.Acquire(ctx, c)
			if err != nil && c.Record == nil && ctx.Err() == nil && !errors.Is(err, core.ErrBusy) && !errors.Is(err, core.ErrLost) {
				return store.Grant{Owner: c.Owner, Token: uint64(time.Now().UnixMicro())}, nil
			}
			return g, err
		},
	}},
	{"lost lease reported as extended", overlaps, &ruined{
		extend: func(r *ruined, ctx context.Context, claims []store.Claim) []store.Extension {
			_ = r.Store.Extend(ctx, claims)
			return make([]store.Extension, len(claims))
		},
	}},
	// The loss of a lease whose hold was passed on is reported as an extension.
	{"passed-on lease reported as extended", untrue, &ruined{
		extend: func(r *ruined, ctx context.Context, claims []store.Claim) []store.Extension {
			_ = r.Store.Extend(ctx, claims)
			return make([]store.Extension, len(claims))
		},
	}},
	{"lost lease reported as released", untrue, &ruined{
		release: func(r *ruined, ctx context.Context, c store.Claim) error {
			if err := r.Store.Release(ctx, c); !errors.Is(err, core.ErrLost) {
				return err
			}
			return nil
		},
	}},
	// Each third grant has an older token.
	{"older tokens", tokensBack, retoken(func(r *ruined, g store.Grant) uint64 {
		if r.n.Add(1)%3 == 0 {
			return g.Token - 100_000
		}
		return g.Token
	})},
	// The tokens of a grant belong to the next grant too.
	{"shared tokens", tokensBack, retoken(func(_ *ruined, g store.Grant) uint64 { return g.Token / 200 })},
	{"each process counts tokens", tokensBack, retoken(func(r *ruined, _ store.Grant) uint64 { return r.n.Add(1) })},
	{"a token stays for ten seconds", tokensBack, retoken(func(_ *ruined, g store.Grant) uint64 { return g.Token / 10_000_000 })},
	{"tokens go down", staleWrites, retoken(func(_ *ruined, g store.Grant) uint64 { return 1<<52 - g.Token })},
	{"grant removes the expiry", eternalKeys, &ruined{
		acquire: func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error) {
			g, err := r.Store.Acquire(ctx, c)
			for _, name := range stored(c.Key) {
				if err == nil && r.network.server.Exists(name) {
					r.network.server.SetTTL(name, 0)
				}
			}
			return g, err
		},
	}},
	// A hold outlives its lease, and no release ends it.
	{"release without effect", stuckWaits, &ruined{
		acquire: func(r *ruined, ctx context.Context, c store.Claim) (store.Grant, error) {
			c.TTL = time.Hour
			return r.Store.Acquire(ctx, c)
		},
		release: func(*ruined, context.Context, store.Claim) error { return nil },
	}},
	{"tombstone never expires", leftBehind, &ruined{
		release: func(r *ruined, ctx context.Context, c store.Claim) error {
			c.TTL = 24 * time.Hour
			return r.Store.Release(ctx, c)
		},
	}},
	{"an answer is not kept", twice, &ruined{
		release: func(r *ruined, ctx context.Context, c store.Claim) error {
			c.Record = nil
			return r.Store.Release(ctx, c)
		},
	}},
}

// TestRuinedStores checks that the oracles find each mistake within 200 seeds.
func TestRuinedStores(t *testing.T) {
	t.Parallel()
	for _, ruin := range ruins {
		t.Run(ruin.name, func(t *testing.T) {
			t.Parallel()
			const most = 200
			for seed := range uint64(most) {
				res := run(t, scene{seed: seed + 1, ruin: ruin.in})
				if found := res.verdict[ruin.says]; len(found) > 0 {
					t.Logf("seed %d: %s", seed+1, found[0])
					tally.Note(t, tally.Facts{Part: "simulation", Runs: int(seed) + 1, Expected: map[string]int{ruin.says: len(found)}})
					return
				}
			}
			t.Errorf("not found within %d seeds: %s", most, ruin.says)
		})
	}
}
