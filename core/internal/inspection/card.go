package inspection

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

var id = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// EncodeCard returns the stored form of c. It returns store.ErrInvalid for a card that
// is not allowed.
func EncodeCard(op string, c store.Card, ttl time.Duration) ([]byte, error) {
	if !id.MatchString(c.Process) {
		return nil, fmt.Errorf("%s: the ID of the process is not of the form [A-Za-z0-9_-]+ (at most 64 bytes): %w", op, store.ErrInvalid)
	}
	if ttl < time.Millisecond || ttl > store.MaxKeep {
		return nil, fmt.Errorf("%s: TTL %s is out of range (1 ms to 24 days): %w", op, words.Duration(ttl), store.ErrInvalid)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("%s: the card cannot be written (%w): %w", op, err, store.ErrInvalid)
	}
	if len(text) > store.MaxCard {
		return nil, fmt.Errorf("%s: the card has %d bytes (at most %d): %w", op, len(text), store.MaxCard, store.ErrInvalid)
	}
	return text, nil
}

// DecodeCard decodes a card that EncodeCard returned for process. It returns false for a
// text that is too long or is not a card of process.
func DecodeCard(process string, text []byte) (c store.Card, ok bool) {
	if len(text) > store.MaxCard || json.Unmarshal(text, &c) != nil || c.Process != process || !id.MatchString(process) {
		return store.Card{}, false
	}
	return c, true
}
