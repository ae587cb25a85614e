// Package core is a distributed lock: at most one holder of a key at a time, in
// all processes that use the same store.
//
//	locks, err := core.New(store) // a store of core/redisstore, core/memstore, …
//	err = locks.Do(ctx, core.Key("order", id), func(ctx context.Context) error {
//		return charge(ctx, id) // ctx ends if the lock is lost
//	})
//
// # The parts
//
// A claim says who wants how much of which key, for how long. A [Store] admits
// claims and remembers them; it never waits, retries or extends. A grant is an
// admitted claim. A [Locker] turns claims into leases: it queues the callers of
// its own process, asks the store, waits for wake-ups, extends what is held, and
// ends a [Lease]'s context when it can no longer vouch for it.
//
// One rule of admission carries every kind of lock. A claim has a weight and a
// limit; the weights that other owners hold plus its own must not exceed its
// limit. Exclusive is All of All, [Shared] is 1 of All, [Permits] is n of N.
//
// # What holds while a lease is held
//
// A lease lasts for its TTL by the store's clock, and is extended every third of
// it. The process trusts it until
//
//	start of the last confirmed attempt + TTL − margin
//
// by its own monotonic clock, time in suspension included. The attempt began
// before the store could apply it, so the store's copy ends later than the trust
// does, if the clocks run at nearly the same rate: the margin is a twentieth of
// the TTL and 2ms. A lease whose extension is not confirmed in time is lost:
// Context ends with cause [ErrLost] before the key can expire. Loss is final,
// whatever the store says later. A failed attempt to extend loses nothing as
// long as the trust lasts; only the store's answer that the hold is gone, or
// the end of the trust, do.
//
// No attempt is ever left behind with an unknown outcome. A claim whose answer
// did not come is asked again under the same name, which counts once, or given
// back in the background until the store has answered, for its TTL and a minute
// at least. A release that overtakes its own acquire makes the store refuse that
// straggler.
//
// # What it promises, and what not
//
// A lock on one server, or on one with asynchronous replicas, has one holder at
// a time as long as no failover loses a write. A holder that is cut off is told
// before its key can expire. A holder that is paused as a whole is told when it
// next runs and looks at its context, which may be after somebody else has been
// granted the key.
//
// So a lease is not proof. Only the resource itself can refuse what a paused
// holder does after its last look: send [Lease.Token] along with every write,
// and refuse those with a smaller token than the greatest seen. Tokens of a key
// grow with each grant, over release, expiry and restart, as long as the
// server's clock is not set back while the key is absent.
//
// # What it does not promise
//
// Each of these has a test that expects it, named in PROOF.md:
//
//   - A holder that is paused after its last look at its context acts while
//     somebody else holds the key.
//   - Two copies of one machine, of which one was restored from a snapshot or
//     cloned, hold one lease.
//   - A failover to a replica that had not seen a grant forgets it, and the key is
//     granted again.
//   - A server that restarts without what it had confirmed forgets it, too.
//   - Within 10 ms of being asked, a server that has forgotten a grant does not keep
//     the next caller of the holder's process from beginning under it.
//   - A master that is cut off together with some of its clients goes on granting
//     to them, while the others choose another master.
//   - A server whose clock is set forward, or a replica that is promoted and whose
//     clock is ahead, ends leases early.
//   - A quorum of which a majority has its clocks set forward ends leases early.
//   - A server whose clock is faster than the holder's by more than the margin
//     ends leases before their holders know.
//   - Tokens go back if the server's clock is set back while the key is absent, or
//     tells only of a lease that is refused.
//   - A plain key of a dead holder stays taken for as long as the server's clock
//     was set back.
//   - A Ring that is disguised as another client has two holders when processes
//     see different servers.
//   - A run whose process dies after its effect and before its answer was saved is
//     run again, and what it did is done again.
//   - A run that begins while nobody can be told of it looks like one that died,
//     to who asks after its lease and before the clean-up.
//
// In the first seven a resource that compares tokens still takes no write of a
// holder once it has seen a later one; copies of one holder it cannot tell apart.
//
// PROOF.md beside this file lists what can go wrong, each with its defence and
// the test that shows it. DESIGN.md says why it is built like this.
package core
