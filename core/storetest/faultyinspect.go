package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Look implements core.Inspector.
func (f faulty) Look(ctx context.Context, key string) (core.State, error) {
	if in, ok := f.store.(core.Inspector); ok {
		return in.Look(ctx, key)
	}
	return core.State{}, notHere("look")
}

// List implements core.Inspector.
func (f faulty) List(ctx context.Context, after string, most int) ([]core.State, string, error) {
	if in, ok := f.store.(core.Inspector); ok {
		return in.List(ctx, after, most)
	}
	return nil, "", notHere("list")
}

// Revoke implements core.Inspector.
func (f faulty) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	if in, ok := f.store.(core.Inspector); ok {
		return in.Revoke(ctx, key, hold, keep)
	}
	return notHere("revoke")
}

// Put implements core.Cards.
func (f faulty) Put(ctx context.Context, c core.Card, ttl time.Duration) error {
	if k, ok := f.store.(core.Cards); ok {
		return k.Put(ctx, c, ttl)
	}
	return notHere("put a card")
}

// Cards implements core.Cards.
func (f faulty) Cards(ctx context.Context) ([]core.Card, error) {
	if k, ok := f.store.(core.Cards); ok {
		return k.Cards(ctx)
	}
	return nil, notHere("cards")
}

func notHere(op string) error { return fmt.Errorf("%s: %w", op, core.ErrUnsupported) }
