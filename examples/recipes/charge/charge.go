// Package charge charges a card once, by a provider that has idempotency keys of its own.
package charge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Bank is the provider. Two calls with the same key are one charge.
type Bank interface {
	Charge(ctx context.Context, key string, cents int) (receipt string, err error)
}

// Pay charges cents for the request that the client names by key, and returns the receipt: to
// each caller of the same request the same one, for as long as once.Retain of runs says. After
// that the request is a new one, and only the bank knows that the key was used.
func Pay(ctx context.Context, runs *once.Once, bank Bank, account, key string, cents int) (string, error) {
	call := once.Call{Name: "charge", Scope: account, Key: key, Fingerprint: fmt.Append(nil, cents)}
	out, err := runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) {
		receipt, err := bank.Charge(ctx, bankKey(account, key), cents)
		return once.Answer{Value: []byte(receipt)}, err
	})
	return string(out.Value), err
}

// bankKey is the same for each attempt, and another one for each account and key. It has no
// part that changes: no number of the attempt, no time, nothing random. Its 32 characters fit
// into the keys of the providers that the page names.
func bankKey(account, key string) string {
	sum := sha256.Sum256([]byte(core.Key("charge", account, key)))
	return hex.EncodeToString(sum[:16])
}
