package store

import (
	"context"
	"time"
)

// Cards is a Store that keeps a card for each process, so that operators can
// distinguish the processes that hold and wait. No lock depends on it.
//
// Its methods are safe for concurrent use, return soon after ctx is done, and fail as
// the methods of Inspector do. A store that was set up to keep no cards fails with
// ErrUnsupported before it checks the arguments.
type Cards interface {
	// Put writes the card of the process c.Process over its last one. The card is kept
	// for ttl, 1 ms to MaxKeep. Put fails with ErrInvalid for a Process that is not 1
	// to 64 letters, digits, '-' and '_', and for a card of more than MaxCard bytes.
	Put(ctx context.Context, c Card, ttl time.Duration) error

	// Cards returns all cards that have not expired, in the order of Process. It leaves
	// out a card that it cannot read, as another version may have written it.
	Cards(ctx context.Context) ([]Card, error)
}

// MaxCard is the maximum length of a card, in bytes of JSON.
const MaxCard = 256 << 10

// Card describes a process: its host, service and version, and its oldest holds and
// waiters. It is written as JSON. It contains no owner, no lease and no token. It
// contains keys, as the store that keeps it does.
type Card struct {
	Process string    `json:"process"` // its ID
	Service string    `json:"service,omitempty"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Start   time.Time `json:"start,omitzero"` // when its Locker was made, on its own clock
	// Trace returns the ID of the trace that a context belongs to, or "". It is called
	// with the contexts of acquires, from a goroutine of the Locker, and also after the
	// contexts are done. A result longer than 64 bytes is left out.
	Trace func(ctx context.Context) string `json:"-"`
	// Entries are the process's oldest holds and waiters when the card was written.
	Entries []CardEntry `json:"entries,omitempty"`
}

// CardEntry is a hold of a process, or a key that it waits for.
type CardEntry struct {
	Name    string        `json:"name"`            // of the lock
	Mode    string        `json:"mode,omitempty"`  // Mode.String; "" on cards of older versions
	Hold    string        `json:"hold,omitempty"`  // HoldID of its lease
	Key     string        `json:"key,omitempty"`   // can be a customer's data
	Trace   string        `json:"trace,omitempty"` // ID of the trace that it belongs to
	Waiting bool          `json:"waiting,omitempty"`
	For     time.Duration `json:"for"` // the time that it had held or waited then, in ns
}
