package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector.
func (f faulty) Look(ctx context.Context, key string) (store.State, error) {
	if in, ok := f.store.(store.Inspector); ok {
		return in.Look(ctx, key)
	}
	return store.State{}, notHere("look")
}

// List implements store.Inspector.
func (f faulty) List(ctx context.Context, after string, most int) ([]store.State, string, error) {
	if in, ok := f.store.(store.Inspector); ok {
		return in.List(ctx, after, most)
	}
	return nil, "", notHere("list")
}

// Revoke implements store.Inspector.
func (f faulty) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	if in, ok := f.store.(store.Inspector); ok {
		return in.Revoke(ctx, key, hold, keep)
	}
	return notHere("revoke")
}

// Put implements store.Cards.
func (f faulty) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	if k, ok := f.store.(store.Cards); ok {
		return k.Put(ctx, c, ttl)
	}
	return notHere("put a card")
}

// Cards implements store.Cards.
func (f faulty) Cards(ctx context.Context) ([]store.Card, error) {
	if k, ok := f.store.(store.Cards); ok {
		return k.Cards(ctx)
	}
	return nil, notHere("cards")
}

func notHere(op string) error { return fmt.Errorf("%s: %w", op, store.ErrUnsupported) }
