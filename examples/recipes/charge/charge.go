// Package charge charges a card once, with a provider that has idempotency keys.
package charge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Bank is the provider. Two calls with the same key cause one charge.
type Bank interface {
	Charge(ctx context.Context, key string, cents int) (receipt string, err error)
}

// Pay charges cents for the client's request with this key, and returns the receipt.
// Repeated calls for the same request return the same receipt for the time of
// once.Retain, an option of runs. After that time the request counts as new, and only
// the bank may still know the key.
func Pay(ctx context.Context, runs *once.Once, bank Bank, account, key string, cents int) (string, error) {
	call := once.Call{Name: "charge", Scope: account, Key: key, Fingerprint: fmt.Append(nil, cents)}
	out, err := runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) {
		receipt, err := bank.Charge(ctx, bankKey(account, key), cents)
		return once.Answer{Value: []byte(receipt)}, err
	})
	return string(out.Value), err
}

// bankKey returns the idempotency key that is sent to the bank. It is the same for each
// attempt, and differs for each pair of account and key. Its 32 characters are within
// the limits of the providers in README.md.
func bankKey(account, key string) string {
	sum := sha256.Sum256([]byte(core.Key("charge", account, key)))
	return hex.EncodeToString(sum[:16])
}
