// Package core is a distributed lock: at most one holder of a key at a time, in
// all processes that use the same store.
//
//	locks, err := core.New(store) // a store of core/redisstore, core/memstore, …
//	err = locks.Do(ctx, core.Key("order", id), func(ctx context.Context) error {
//		return charge(ctx, id) // ctx ends if the lock is lost
//	})
//
// # Where to begin
//
// [New] makes a [Locker] from a store. [Locker.Do] runs a function under a lock,
// [Locker.Acquire] waits for one and returns a [Lease], and [Locker.TryAcquire] makes
// one attempt. [Key] makes keys. Options of an acquire, such as [TTL], [Wait] and
// [Shared], say how: [WithDefaults] sets them for all. [Locker.Close] ends it all.
// Package once keeps the answer of what must run once, and the packages httpmw,
// grpcmw and taskmw put both in front of handlers.
//
// A Locker turns claims at a store into leases: it queues the callers of its own process,
// asks the store, waits for wake-ups, extends what is held, and ends a lease's context when
// the lease cannot be trusted any more. Package store has the contract of a store, for
// those who write one, and package adapter what middleware needs of a Locker.
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
// A store may grant a hold that waited for less than its TTL, as redisstore does by the
// message of a release: for about 1.4s. If less than two thirds of the TTL are left then,
// the hold is extended to its TTL 10ms after the grant.
//
// No attempt is left behind with an unknown outcome. A claim whose answer did not come
// is asked again under the same name, which counts once. Or it is given back in the
// background until the store has answered, for its TTL and a minute at least. If a
// release overtakes its own acquire, the store refuses the acquire.
//
// # What it promises, and what not
//
// A lock on one server, or on one with asynchronous replicas, has one holder at
// a time as long as no failover loses a write. A holder that is cut off is told
// before its key can expire. A holder that is paused as a whole is told when it
// next runs and looks at its context, which may be after another holder has been
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
//     tells only of a lease that is refused.
//   - Where another program deletes a key between the SET of its lock and the TIME
//     that is the token, the lock that is gone has a later token than the next one.
//   - A plain key of a dead holder stays taken for as long as the server's clock
//     was set back.
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
// In the first nine a resource that compares tokens still takes no write of a
// holder once it has seen a later one; copies of one holder it may not tell apart.
//
// PROOF.md beside this file lists what can go wrong, each with its defence and
// the test that shows it. DESIGN.md says why it is built like this.
package core
