// Package core is a distributed lock: at most one holder of a key at a time, in
// all processes that use the same store.
//
//	locks, err := core.New(store) // a store of core/redisstore, core/memstore, …
//	err = locks.Do(ctx, core.Key("order", id), func(ctx context.Context) error {
//		return charge(ctx, id) // ctx is canceled if the lock is lost
//	})
//
// # Where to begin
//
// [New] makes a [Locker] from a store. [Locker.Do] runs a function under a lock.
// [Locker.Acquire] waits for a lock and returns a [Lease], and [Locker.TryAcquire]
// makes one attempt. [Key] makes keys. Options such as [TTL], [Wait] and [Shared] apply
// to one acquire; [WithDefaults] sets them for all. [Locker.Close] shuts everything
// down. Package once stores the answer of work that must run once. The packages httpmw,
// grpcmw and taskmw put both in front of handlers.
//
// A Locker turns claims at a store into leases. It queues the callers of its own
// process, asks the store, waits for wake-ups and extends the holds. It ends a lease's
// context when the lease cannot be trusted any more. Package store has the contract of
// a store, for those who write one, and package adapter has what middleware needs of a
// Locker.
//
// # Guarantees of a lease
//
// A lease lasts for its TTL by the store's clock, and is extended every third of the
// TTL. The process trusts it until
//
//	start of the last confirmed attempt + TTL − margin
//
// by its own monotonic clock, including time for which the machine was suspended. The
// attempt began before the store could apply it. So the store's copy expires after the
// trust ends, if the clocks run at nearly the same rate: the margin is a twentieth of
// the TTL and 2ms. A lease whose extension is not confirmed in time is lost: Context is
// done with cause [ErrLost] before the key can expire. Loss is final, whatever the
// store answers later. A failed attempt to extend loses nothing as long as the trust
// lasts. A lease is lost only by the store's answer that the hold is gone, or by the
// end of the trust.
//
// A store may grant a hold to a waiter for less than its TTL: redisstore does so by the
// message of a release, for about 1.4s. If less than two thirds of the TTL are left
// then, the hold is extended to its TTL 10ms after the grant.
//
// No attempt is left behind with an unknown outcome. A claim whose answer did not come
// is asked again under the same name, which counts once. Otherwise it is released in
// the background. That release is retried until the store answers, for at least the
// claim's TTL and at least a minute. If a release overtakes its own acquire, the store
// refuses the acquire.
//
// # Guarantees and limits
//
// A lock on one server, or on one with asynchronous replicas, has one holder at a time
// unless a failover loses a write. A holder that is cut off learns of the loss before
// its key can expire. A holder whose whole process was paused learns of it when it next
// runs and checks its context. Another holder may have been granted the key before
// that.
//
// So a lease is not proof. Only the resource itself can refuse what a paused holder
// does after its last check. Send [Lease.Token] along with every write, and refuse
// writes with a smaller token than the greatest seen. Tokens of a key grow with each
// grant, over release, expiry and restart, unless the server's clock is set back while
// the key is absent.
//
// # What it does not promise
//
// Each of these has a test that expects it, named in PROOF.md:
//
//   - A holder that is paused after its last look at its context acts while
//     another holder has the key.
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
//   - A quorum ends leases early if the clocks of all servers are set forward that a
//     holder's majority and another one share. That is a majority of the servers if all
//     clients reach all of them, and can be one server if each is cut off from some.
//   - A server whose clock is faster than the holder's by more than the margin
//     ends leases before their holders know.
//   - Tokens go back if the server's clock is set back while the key is absent, or
//     while it has only a tombstone.
//   - Where another program deletes a key between the SET of its lock and the TIME
//     that is the token, the lock that is gone has a later token than the next one.
//   - A plain key of a dead holder, or one with `WithRedisson`, stays taken for as long as
//     the server's clock was set back.
//   - With plain keys and `WithRedisson`, an acquire that arrives after its own release
//     holds the key, for at most one TTL.
//   - Tokens of `WithRedisson` repeat if their counter is lost, by a failover or by
//     `RFencedLock.delete()` in Java.
//   - A Ring that is disguised as another client has two holders when processes
//     see different servers.
//   - A run whose process dies after its effect and before its answer was saved is
//     run again, and what it did is done again.
//   - A run whose begin got no answer looks like a run that died, from the end of its
//     lease until the clean-up takes it back.
//   - A late unlock of another client that does not compare owners (ShedLock without
//     `safeUpdate`) frees a plain key that the kit holds, and its late extension takes the
//     key over.
//
// In the first nine a resource that compares tokens still rejects writes of a holder
// once it has seen a newer token. Copies of one holder may not be distinguishable by
// their token.
//
// GUARANTEES.md beside this file has each promise with its tests. PROOF.md lists the
// hazards, each with its defence and the test that shows it. DESIGN.md explains why the
// kit is built this way.
package core
