// Package casstore keeps locks in any place that has compare-and-set: your own database,
// in two methods. README.md has a whole place.
//
//	s, err := casstore.New(place) // place has Load and Save
//	locker, err := core.New(s)
//
// The rule of locks is in Go. A [Store] loads the entry of a key from a [Place], applies
// the rule at the place's own time, and saves the result unless another client was
// faster. Nothing is locked in between. Every kind of claim is served, with fencing
// tokens and records.
//
// [Commit] saves the answer of a run in a transaction of the caller, which is a Place
// too.
//
// A place may add to its two methods: [Usual] takes the usual lock in one step,
// [Watcher] wakes waiters, [Lister] shows the holds, and [Sweeper] deletes expired
// entries. [Pooled] is for places with a pool of connections, and [Prober] for those
// that can be read but not written.
package casstore
