package store

import (
	"context"
	"time"
)

// Cards is a Store that stores a card for each process. The cards help operators to
// distinguish the processes that hold and wait. No lock depends on a card.
//
// Its methods are safe for concurrent use, return soon after ctx is done, and fail like
// the methods of Inspector. A store that was configured without cards fails with
// ErrUnsupported before it checks the arguments.
type Cards interface {
	// Put stores c, and replaces an earlier card of the process c.Process. The card is
	// stored for ttl, from 1 ms to MaxKeep. Put fails with ErrInvalid for a card of
	// more than MaxCard bytes. It also fails with ErrInvalid unless Process is 1 to 64
	// letters, digits, '-' and '_'.
	Put(ctx context.Context, c Card, ttl time.Duration) error

	// Cards returns all cards that have not expired, in the order of Process. It omits
	// a card that it cannot read, because another version may have written the card.
	Cards(ctx context.Context) ([]Card, error)
}

// MaxCard is the maximum length of a card, in bytes of JSON.
const MaxCard = 256 << 10

// Card describes a process: its host, service and version, and its old holds and
// waiters. A card is encoded as JSON. It contains no owner, no lease and no token. It
// contains keys, which can be customers' data.
type Card struct {
	Process string    `json:"process"` // the ID of the process
	Service string    `json:"service,omitempty"`
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Start   time.Time `json:"start,omitzero"` // when the Locker was made, by the process's clock
	// Trace returns the ID of the trace that a context belongs to, or "". A goroutine
	// of the Locker calls it with the contexts of acquires, even after these contexts
	// are done. A result that is not printable UTF-8 of at most 64 bytes is omitted.
	Trace func(ctx context.Context) string `json:"-"`
	// Entries are the holds and waiters of the process that were older than 5 seconds
	// at the time of the write, the oldest first. There are at most 1,000 entries, and
	// only as many as fit into the card.
	Entries []CardEntry `json:"entries,omitempty"`
}

// CardEntry is a hold of a process, or a key that the process waits for.
type CardEntry struct {
	Name    string        `json:"name"`            // the lock's static name
	Mode    string        `json:"mode,omitempty"`  // Mode.String; "" on cards of older versions
	Hold    string        `json:"hold,omitempty"`  // the HoldID of the lease
	Key     string        `json:"key,omitempty"`   // may contain a customer's data
	Trace   string        `json:"trace,omitempty"` // the result of Card.Trace
	Waiting bool          `json:"waiting,omitempty"`
	For     time.Duration `json:"for"` // duration of the hold or the wait at the write, in ns
}
