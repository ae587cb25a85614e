// Package inspect is for operators: it shows which process holds a lock and which ones
// wait for it, and takes a hold away that is stuck.
//
//	in, err := inspect.New(store)
//	lock, err := in.Look(ctx, core.Key("order", "42"))
//	err = in.Revoke(ctx, lock.Key, lock.Holds[0].ID)
//
// Handler is the same as a web page, and as JSON.
//
// There are two ways to take a hold away. Revoke keeps the key taken for the rest of
// the hold, so that its holder learns of the loss before another process can have the
// key. ReleaseNow frees the key at once: until the old holder learns of the loss, for a
// third of its TTL, there can be two, and only a resource that checks fencing tokens is
// safe from the old one.
//
// All goes through store.Inspector and store.Cards of the store: nothing is on the path
// of a lock, and nothing shows an owner, a lease or the answer of a run.
package inspect
