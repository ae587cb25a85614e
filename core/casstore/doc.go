// Package casstore keeps locks in any place that has compare-and-set: your own database, in
// two methods. README.md has a whole one.
//
//	s, err := casstore.New(place) // place has Load and Save
//	locker, err := core.New(s)
//
// The rule of locks is in Go. A [Store] loads what a [Place] keeps of a key, applies the rule
// at the place's own time, and saves what has become of it if nobody else was faster. Nothing
// is locked in between. Every kind of claim is served, with fencing tokens and records.
//
// [Commit] saves the answer of a run in a transaction of the caller, which is a Place too.
//
// A place may add to its two methods: [Usual] takes the usual lock in one step, [Watcher]
// wakes waiters, [Lister] shows what is held, and [Sweeper] deletes what has expired. [Pooled] is
// for places with a pool of connections, and [Prober] for those that can be read but not written.
package casstore
