// Package casstore stores locks in any place with compare-and-set. For your own
// database you write two methods. README.md shows a whole place.
//
//	s, err := casstore.New(place) // place has Load and Save
//	locker, err := core.New(s)
//
// The rule of locks is implemented in Go. A [Store] loads the entry of a key from a
// [Place], applies the rule at the place's own time, and saves the result. If another
// client has changed the entry in between, the Store starts again, for at most two
// seconds. The Store locks nothing in the place between load and save. Every kind of
// claim is served, with fencing tokens and records, unless the place itself refuses the
// claim.
//
// [Commit] saves the record of a run in a transaction of the caller. The caller passes
// the transaction as a Place.
//
// A place may implement further interfaces. A [Usual] takes the usual lock in one step,
// a [Watcher] wakes waiters, a [Lister] lists the keys, and a [Sweeper] deletes expired
// entries. [Pooled] is for places with a pool of connections. [Prober] is for places
// that may be readable but not writable.
package casstore
