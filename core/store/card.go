package store

import (
	"context"
	"time"
)

// Cards is a Store that keeps a card for each process, so that operators can tell the
// processes apart that hold and wait. Nothing that a lock does depends on it.
//
// Its methods are safe for concurrent use, return soon after ctx ends, and fail as
// those of Inspector do. A store that was set up so that it keeps no cards fails with
// ErrUnsupported before it looks at the arguments.
type Cards interface {
	// Put writes the card of the process c.Process over its last one. It is kept for
	// ttl, 1 ms to MaxKeep. It fails with ErrInvalid for a Process that is not 1 to 64
	// letters, digits, '-' and '_', and for a card of more than MaxCard bytes.
	Put(ctx context.Context, c Card, ttl time.Duration) error

	// Cards returns all cards that have not ended, in the order of Process. A card that
	// cannot be read, as another version may have written it, is left out.
	Cards(ctx context.Context) ([]Card, error)
}

// MaxCard is how long a card may be, in bytes, as JSON.
const MaxCard = 256 << 10

// Card describes a process: its host, service and version, and its oldest holds and waiters. It is written as
// JSON. It has no owner, no lease and no token. It has keys, as the store that keeps it
// has.
type Card struct {
	Process string    `json:"process"` // its ID
	Service string    `json:"service,omitempty"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Start   time.Time `json:"start,omitzero"` // when its Locker was made, on its own clock
	// Trace tells the ID of the trace that a context is part of, "" if it is part of none.
	// It is called with the contexts of acquires, from a goroutine of the Locker and also
	// after they have ended. Its result is left out if it is longer than 64 bytes.
	Trace func(ctx context.Context) string `json:"-"`
	// Entries are its oldest holds and waiters when the card was written.
	Entries []CardEntry `json:"entries,omitempty"`
}

// CardEntry is a hold of a process, or a key that it waits for.
type CardEntry struct {
	Name    string        `json:"name"`            // of the lock
	Mode    string        `json:"mode,omitempty"`  // Mode.String; "" on cards of older versions
	Hold    string        `json:"hold,omitempty"`  // HoldID of its lease
	Key     string        `json:"key,omitempty"`   // can be a customer's data
	Trace   string        `json:"trace,omitempty"` // ID of the trace that it is part of
	Waiting bool          `json:"waiting,omitempty"`
	For     time.Duration `json:"for"` // how long it had held or waited then, in ns
}
