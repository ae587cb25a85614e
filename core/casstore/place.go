package casstore

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Place stores an [Entry] for each key, and changes it by compare-and-set. An entry can
// be a row of a table, a key of etcd or an item of DynamoDB.
//
// The Store calls a Place from many goroutines. A call of the Place can outlast the
// Store's caller. The ctx of a call is done after at most two seconds. It does not
// carry the caller's cause. The exceptions are Connect, Watch and the calls of Commit,
// whose documentation describes their ctx. Keys are 1 to 512 arbitrary bytes. Keys of
// locks contain no braces, so the Store's own keys begin with a brace.
//
// A method that fails with an error matching store.ErrUnavailable or [ErrConflict] has
// certainly changed nothing. After any other error of a method that writes, the outcome
// is unknown. When in doubt, return an error that matches neither of these two nor
// another sentinel of package store.
type Place interface {
	// Load returns the entry of key, from a single read, and the place's own time at a
	// moment within the call. If there is no entry, Version is 0.
	//
	// The entry and the time may come from a replica, unless w.Current is set.
	Load(ctx context.Context, key string, w Want) (Entry, error)

	// Save replaces old, which Load has returned, by e, and reports whether it did. It
	// compares and writes in one step:
	//
	//   - If old.Version is not 0, the entry must still have that version.
	//   - If old.Version is 0, there must be no entry. In a place that deletes entries,
	//     the floor must also still be old.Floor.
	//   - In a place with replicas, old.Now must be at most a second before the current
	//     time, and not after it. A replica's time may be wrong, and no expiry may
	//     depend on it. A long e.Value may need more time, such as another second for
	//     32 MiB.
	//
	// If one of these conditions is not met, Save returns false and nil. The Store then
	// starts again with a Load, and Commit fails. Save stores e.Version with the entry,
	// and a later Load returns it. That also holds for a place that counts changes
	// itself. A driver may send a Save twice, unless the Place is Pooled.
	Save(ctx context.Context, key string, old, e Entry) (bool, error)
}

// ErrConflict is returned when a Place has changed nothing because of another statement,
// for example after a deadlock or a serialization failure. An acquire, an extension or a
// release then tries again, for at most two seconds. Commit does not try again.
var ErrConflict = errors.New("lockkit: another statement was faster")

// Want describes the data that a Load needs. A place may ignore Want and return the
// newest entry with its value.
type Want struct {
	Value   bool // Entry.Value is needed; without it, Load may leave Value nil
	Current bool // the newest entry is needed, for example because a Save has lost
}

// Entry is the data of one key in a place. Times are stored in microseconds. A place
// stores Version, State and Value, and the fields that its optional interfaces need.
type Entry struct {
	// Version changes with each write. The Store chooses a random number from 1 to
	// 2^63-1. 0 means that there is no entry.
	Version int64
	// Now is the place's own time, set by Load and ignored by Save.
	Now time.Time
	// Floor is the highest token with which Sweeper.Raise was called. Load sets Floor if
	// there is no entry. Save ignores Floor in e. Floor is 0 in a place that deletes
	// nothing.
	Floor uint64
	// State is ASCII text, in JSON. It is nil if Alone holds the whole state, which
	// occurs only in a place that is Usual.
	State []byte
	// Alone has the last token, and the key's only hold if State is nil. A Place that is
	// not Usual may ignore Alone.
	Alone Alone
	// Value is the value of the record, up to 64 MiB. It is nil if there is no value.
	Value []byte
	// KeepValue makes Save leave the stored value unchanged, and ignore Value.
	KeepValue bool
	// Due is the earliest time at which the entry may be deleted. By then everything in
	// the entry has expired, unless the entry was written again.
	Due time.Time
	// Wake lists the leases of the waiting claims that Save must wake, in a place that
	// is a Watcher. The place does not store Wake.
	Wake []string
}

// Alone has the last token of a key. In a place that is Usual, it also has the key's
// hold if State is nil. Such a hold is exclusive, and has a lease and an owner of at
// most 255 bytes each. There is then nothing else to store. A place can store the
// fields in the columns of a row. Times are whole microseconds.
type Alone struct {
	// Token is the first token of the last grant, even if State is set. The
	// store.TokenStep-1 tokens after it belong to that grant.
	Token uint64
	// Lease and Owner identify the hold, with up to 255 arbitrary bytes each. They are
	// empty if there is no hold, or State is set.
	Lease, Owner string
	// Since and Until are the times of the hold. Without a hold they are zero, or the
	// times of a hold that was released.
	Since, Until time.Time
	// Written is the place's time at the write, even if State is set. A current time
	// before Written shows that the clock was set back.
	Written time.Time
}

// Usual is a Place that takes and releases the usual lock in one step each. Such a step
// is one statement that reads the time, compares and writes. The usual lock is the only
// hold of its key, is exclusive, and has no waiters, tombstones or record.
//
// An entry is free if State is nil, and neither Alone.Written nor Alone.Until is after
// now, the place's time. An entry is held by a lease if State is nil, Alone.Lease is
// the lease, Alone.Written is not after now, and Alone.Until is after now. If a method
// finds anything else, it changes nothing. The Store then uses Load and Save.
type Usual interface {
	Place

	// Take grants c if c's key has no entry or a free entry, and reports whether it
	// did. Take sets Version to version, and Lease and Owner to c.Lease and c.Owner. It
	// sets Since and Written to now, and Until and Due to now plus c.TTL. It sets Token
	// to the highest of three numbers: now in microseconds, the last token plus
	// store.TokenStep, and c.MinToken. The last token is Alone.Token, or the floor if
	// there is no entry. Take stores no value.
	Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error)

	// Give releases the hold of c.Lease if that lease holds the key, and reports
	// whether it did. It sets Version to version, Until and Written to now, and Lease
	// and Owner to "".
	Give(ctx context.Context, c store.Claim, version int64) (ok bool, err error)

	// Extend extends each key that is held by the lease of its claim, and reports for
	// each claim whether it certainly did. It sets Version to version and Written to
	// now. It sets Until to now plus c.TTL, unless Until is later already. Due must not
	// be before Until. Extend may leave out a key that another client has locked. done
	// is valid even if Extend returns an error. The error then concerns the claims whose
	// element of done is false. There are at most 512 claims, of different keys.
	Extend(ctx context.Context, claims []store.Claim, version int64) (done []bool, err error)
}

// Pooled is a Place whose calls share connections and may have to wait for a
// connection. If the caller leaves while a write waits in a Place that is not Pooled,
// the outcome of the write is unknown. Each call of a Pooled place has one connection,
// and a Pooled place sends no write twice. So a write with the result false has changed
// nothing.
type Pooled interface {
	Place

	// Connect waits for a connection until ctx is done. In an acquire, an extension or a
	// release, ctx is derived from the caller's and is done after at most two seconds.
	// The Store calls one method of the Place with a ctx derived from connected, and
	// then release. If Connect fails, nothing was sent.
	Connect(ctx context.Context) (connected context.Context, release func(), err error)
}

// Prober is a Place that can report whether it accepts writes. While calls fail, the
// Store calls Probe. It calls Probe twice at once only if Probe does not return when
// its ctx is done. For a Place that is not a Prober, the Store loads a key of its own
// instead.
type Prober interface {
	Place

	// Probe returns nil if the place accepts writes. It changes nothing, and does not
	// wait for other calls.
	Probe(ctx context.Context) error
}

// Watcher is a Place that wakes waiting claims.
type Watcher interface {
	Place

	// Watch returns a channel that receives a value when any process makes a Save for
	// key with this lease in e.Wake. It has the contract of store.Watcher's Watch. The
	// watch is live before Watch returns, and ends with ctx. A wake-up is a hint. The
	// channel is closed when the watch breaks. Watch gets the caller's ctx. If Watch
	// fails, the Store's Watch returns an error matching store.ErrUnavailable.
	Watch(ctx context.Context, key, lease string) (<-chan struct{}, error)
}

// Lister is a Place that lists its keys. store.Inspector and store.Cards need it.
type Lister interface {
	Place

	// List returns the first entries whose keys come after the given key, sorted by the
	// bytes of their keys. The parameter most, from 1 to 1,000, is their maximum number.
	// A list with fewer entries means that no more entries follow. Values may be left
	// out. Every key is after "".
	List(ctx context.Context, after string, most int) ([]Item, error)
}

// Item is an entry and its key.
type Item struct {
	Key string
	Entry
}

// Sweeper is a Place from which the Store deletes dead entries. In other places an
// entry stays forever.
type Sweeper interface {
	Place

	// Dead returns entries whose Due has passed, in any order. The parameter most is
	// their maximum number. An entry may appear some minutes late. Values may be left
	// out.
	Dead(ctx context.Context, most int) ([]Item, error)

	// Raise raises the floor to at least token. The Store deletes an entry only if it
	// has called Raise with the entry's token or a higher token, at least ten seconds
	// before.
	Raise(ctx context.Context, token uint64) error

	// Delete deletes each entry that still has the version of its item, and returns the
	// number of deleted entries. It takes as few steps as possible. It leaves out
	// entries that another client has locked. In a place with replicas, Delete deletes
	// no item whose Now is after the current time. There are at most 1,000 items, of
	// different keys.
	Delete(ctx context.Context, items []Item) (deleted int, err error)
}
