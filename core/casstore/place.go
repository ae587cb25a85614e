package casstore

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Place keeps an [Entry] for each key, and changes it by compare-and-set. A row of a
// table, a key of etcd or an item of DynamoDB is an entry.
//
// The Store calls a Place from many goroutines. It runs each call where the caller can
// leave it, on a ctx of its own that is done after two seconds and has no cause of the
// caller. Keys are 1 to 512 bytes of any kind. Those of locks have no braces, so the
// Store's own keys begin with one.
//
// A method that fails with an error matching store.ErrUnavailable or [ErrConflict] has
// certainly changed nothing. After any other error of a method that writes, the outcome
// is unknown. When in doubt, return an error that matches none of these, nor another
// sentinel of package store.
type Place interface {
	// Load returns the entry of key, as one read, and the place's own time at a moment
	// within the call. If there is no entry, Version is 0.
	//
	// The entry and the time may be those of a replica, unless w.Current is set.
	Load(ctx context.Context, key string, w Want) (Entry, error)

	// Save writes e over old, which Load has returned, and reports whether it did. It
	// compares and writes in one step:
	//
	//   - If old.Version is not 0, the entry must still have that version.
	//   - If old.Version is 0, there must be no entry. A place that deletes entries must
	//     still have old.Floor too.
	//   - In a place with replicas, old.Now must be the time, or one up to a second ago: that of
	//     a replica may be any other, and nothing may last by it. A long e.Value may take more
	//     time on its way, as another second for 32 MiB.
	//
	// Save keeps e.Version with the entry, so that a later Load returns it, even in a
	// place that counts changes by itself. If one of these conditions is not met, Save
	// returns false and nil, and the Store asks again. It is no fault if a driver sends
	// a Save twice.
	Save(ctx context.Context, key string, old, e Entry) (bool, error)
}

// ErrConflict is the error of a statement that was rolled back because of another one,
// as after a deadlock or a serialization failure. Then the Store asks again.
var ErrConflict = errors.New("another statement was faster")

// Want is the purpose of a Load. A place may ignore it and return the newest entry with
// its value.
type Want struct {
	Value   bool // the entry's Value; without it, Load may leave Value nil
	Current bool // the newest entry: an earlier Load has returned an old one, or lost a race
}

// Entry is a place's data of one key. Times are kept in microseconds. A place keeps
// Version, State and Value, and the fields that its optional interfaces need.
type Entry struct {
	// Version is another one after each write: a random number, at least 1, that is never
	// used twice. The Store chooses it. 0 means that there is no entry.
	Version int64
	// Now is the place's own time, set by Load and ignored by Save.
	Now time.Time
	// Floor is the highest token that Sweeper.Raise was called with, set by Load if
	// there is no entry, and ignored in a Save's e. It is 0 in a place that deletes
	// nothing.
	Floor uint64
	// State is ASCII text, in JSON. It is nil if Alone has all of the state, which
	// happens only in a place that is Usual.
	State []byte
	// Alone is the usual lock, in a place that is Usual. Another one may ignore it.
	Alone Alone
	// Value is the stored answer, up to 64 MiB. It is nil if there is none.
	Value []byte
	// KeepValue makes Save leave the stored value as it is, and ignore Value.
	KeepValue bool
	// Due is when nothing of the entry is alive any more, unless it is written again.
	Due time.Time
	// Wake has the leases of the waiting claims that Save must wake, in a place that is
	// a Watcher. They are not kept.
	Wake []string
}

// Alone is an exclusive hold that is the whole state of its key: the columns of a row.
// Times are whole microseconds.
type Alone struct {
	// Token is the first token of the last grant, even if State is set. The
	// store.TokenStep-1 tokens after it belong to that grant.
	Token uint64
	// Lease and Owner are those of the hold, up to 255 bytes of any kind. They are empty
	// if there is no hold, or State is set.
	Lease, Owner string
	Since, Until time.Time // of the hold; zero if there is none
	// Written is the place's time at the write, even if State is set. A time before it
	// shows that the clock was set back.
	Written time.Time
}

// Usual is a Place that takes and releases the usual lock in one step each way: one
// statement that reads the time, compares and writes. The usual lock is one exclusive
// hold, with nothing beside it.
//
// An entry is free if State is nil, and neither Alone.Written nor Alone.Until is after
// the place's time now. An entry is held by a lease if State is nil, Alone.Lease is the
// lease, Alone.Written is not after now, and Alone.Until is. If a method finds anything
// else it changes nothing, and the Store uses Load and Save.
type Usual interface {
	Place

	// Take grants c if its key has no entry or a free one, and reports whether it did. It
	// writes version, Lease, Owner, Since and Written now, Until now and c.TTL, and as
	// Token the highest of now in microseconds, the last token and store.TokenStep, and
	// c.MinToken. The last token is Alone.Token, or the floor if there is no entry. It
	// leaves no value, and Due is Until.
	Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error)

	// Give ends the hold of c.Lease if the key is held by it, and reports whether it did.
	// It writes version, Until and Written now, and empty Lease and Owner.
	Give(ctx context.Context, c store.Claim, version int64) (ok bool, err error)

	// Extend extends each key that is held by its claim's lease, and reports for each
	// whether it certainly did. It writes version, Written now, and Until now and c.TTL
	// unless that is earlier; Due is not before Until. It need not do so for a key that
	// another client has locked. Done counts even with an error, which then concerns the
	// others. There are at most 512 claims, of different keys.
	Extend(ctx context.Context, claims []store.Claim, version int64) (done []bool, err error)
}

// Pooled is a Place whose calls share connections, for which they may have to wait.
// Without it the outcome of a call is unknown if the call waits in the Place when its
// caller leaves. Each call has one connection, so no write is sent twice: one that was
// answered with false has changed nothing.
type Pooled interface {
	Place

	// Connect waits for a connection while ctx lasts, which is the caller's and has at
	// most two seconds. The Store calls at most one method of the Place with the
	// returned ctx, and then release. Connect fails if there is no connection: nothing
	// was sent.
	Connect(ctx context.Context) (connected context.Context, release func(), err error)
}

// Prober is a Place that can report whether it takes writes. The Store asks it while
// calls fail, one question at a time. Without it the Store loads a key of its own.
type Prober interface {
	Place

	// Probe reports whether the place takes writes. It changes nothing, and waits for
	// no other call.
	Probe(ctx context.Context) error
}

// Watcher is a Place that wakes waiting claims.
type Watcher interface {
	Place

	// Watch returns a channel that receives when a Save with this lease in e.Wake was
	// made for key, in any process. Its contract is that of store.Watcher's Watch: live
	// before it returns, a hint, closed when the watch breaks, ended with ctx. It is the
	// only call with the caller's ctx. It fails with store.ErrUnavailable.
	Watch(ctx context.Context, key, lease string) (<-chan struct{}, error)
}

// Lister is a Place that lists its keys. It is needed for store.Inspector's List and for
// store.Cards.
type Lister interface {
	Place

	// List returns up to most entries, at most 1,000, whose keys come after the given
	// one, in the order of their bytes. Fewer than most mean that there are no more.
	// Values may be left out. Every key is after "".
	List(ctx context.Context, after string, most int) ([]Item, error)
}

// Item is an entry and its key.
type Item struct {
	Key string
	Entry
}

// Sweeper is a Place from which the Store deletes dead entries. In a place that is none,
// an entry stays for ever.
type Sweeper interface {
	Place

	// Dead returns up to most entries whose Due has passed, in any order. It may return
	// them some minutes later. Values may be left out.
	Dead(ctx context.Context, most int) ([]Item, error)

	// Raise makes the floor at least token. The Store raises it at least ten seconds
	// before it deletes an entry with that token.
	Raise(ctx context.Context, token uint64) error

	// Delete deletes each of the entries that still has the version of its item, in as few
	// steps as it can, and returns how many it has deleted. It leaves out an entry that another
	// client has locked. There are at most 1,000, of different keys.
	Delete(ctx context.Context, items []Item) (deleted int, err error)
}
