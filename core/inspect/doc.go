// Package inspect is for operators. It shows which process holds a lock and which ones
// wait for it, and removes a hold that is stuck.
//
//	in, err := inspect.New(store)
//	lock, err := in.Look(ctx, core.Key("order", "42"))
//	err = in.Revoke(ctx, lock.Key, lock.Holds[0].ID)
//
// Handler offers the same as a web page, and as JSON.
//
// There are two ways to remove a hold. Revoke keeps the key taken for the rest of the
// hold, so that its holder learns of the loss before another process can have the key.
// ReleaseNow frees the key at once. Until the old holder learns of the loss, for a
// third of its TTL, there can then be two holders, and only a resource that checks
// fencing tokens is safe from the old one.
//
// Everything goes through store.Inspector and store.Cards of the store. Nothing is on
// the path of a lock, and nothing shows an owner, a lease or the result of a run.
package inspect
