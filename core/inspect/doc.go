// Package inspect shows operators which process holds a lock and which processes wait
// for the lock. It also removes stuck holds.
//
//	in, err := inspect.New(store)
//	lock, err := in.Look(ctx, core.Key("order", "42"))
//	err = in.Revoke(ctx, lock.Key, lock.Holds[0].ID)
//
// Handler offers the same functions as a web page, and as JSON.
//
// There are two ways to remove a hold. Revoke keeps the key taken for the rest of the
// hold. So the holder is notified of the loss before another process can have the key.
// ReleaseNow frees the key at once. There can be two holders until the old holder is
// notified of the loss. That takes up to a third of the old holder's TTL. It takes
// longer after Lease.Extend, for a lease that is not extended, and if that process is
// paused or cut off from the store. Meanwhile, only a resource that checks fencing
// tokens is safe from the old holder.
//
// Of a store, the package uses only store.Inspector and store.Cards. It never acquires
// or extends a lock, and it never shows an owner, a lease ID or the result of a run.
package inspect
