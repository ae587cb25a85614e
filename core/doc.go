// Package core provides distributed locks. A lock gives a key to one holder at a time,
// across all processes that use the same store.
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
// down. Package once runs work under a lock and stores the answer of the work for
// duplicates. The packages httpmw, grpcmw and taskmw put locks and package once in
// front of handlers.
//
// A Locker sends claims, which are requests for a key, to its store. For each granted
// claim the Locker has a hold of the key, and it gives its caller a lease. It queues
// the callers of its own process, waits for the store's wake-ups and extends the holds.
// It cancels a lease's context when the lease can no longer be trusted. Package store
// documents the contract of a store, for authors of stores. Package adapter has the
// parts of a Locker that middleware needs.
//
// # Guarantees of a lease
//
// A lease lasts for its TTL by the store's clock. It is extended every third of the
// TTL, except with [NoRenew], and only until [MaxHold]. The process trusts the lease
// until
//
//	start of the last confirmed attempt + TTL − margin
//
// by the process's own monotonic clock, including time for which the machine was
// suspended. The start of the attempt is before the time at which the store applied it.
// So the trust ends before the hold expires at the store, if the two clocks run at
// nearly the same rate. The margin is a twentieth of the TTL plus 2 ms. A lease whose
// extension is not confirmed in time is lost. Its Context is then done with cause
// [ErrLost], before the key can expire. A loss is final, whatever the store answers
// later. A lease is lost only if the store answers that the hold is gone, or if the
// trust ends. A failed attempt to extend is retried as long as the trust lasts.
//
// A store may grant a key to a waiter for less than the waiter's TTL. In redisstore,
// the script that releases a key can grant the key to a waiter by a message, for about
// 1.4 s. If less than two thirds of the TTL are left after such a grant, the hold is
// extended to the whole TTL after 10 ms.
//
// A claim with an unknown outcome is settled, or expires. A claim without an answer is
// sent again under the same lease ID, and the store counts the claim once. If the
// acquire gives up, the claim is released in the background. The release is retried
// until the store answers, or until the longer of the claim's TTL and a minute has
// passed. For a run, ten minutes replace the minute. If the release of a claim arrives
// before its acquire, the store refuses the acquire.
//
// # Guarantees and limits
//
// On one server, with or without asynchronous replicas, a lock has one holder at a
// time, except under the limits below. A holder that is cut off learns of the loss
// before its key can expire. A holder whose whole process was paused learns of the loss
// when it next runs and checks its context. By then another holder may have got the
// key.
//
// So a lease does not prove that its holder still has the key. Only the resource itself
// can refuse the writes of a paused holder after its last check. Send [Lease.Token]
// with every write, and make the resource refuse a token that is smaller than the
// greatest seen. The tokens of a key grow with each grant, even after a release, an
// expiry or a restart. They do not grow if the server's clock is set back while the key
// is absent.
//
// # What it does not promise
//
// Each of these limits has a test that expects it, named in PROOF.md:
//
//   - A holder that is paused after the last check of its context acts while another
//     holder has the key.
//   - If a machine is cloned or restored from a snapshot, both copies hold the same
//     lease.
//   - A failover to a replica that has not received a grant forgets the grant, and the
//     key is granted again.
//   - A server that restarts without its confirmed writes forgets their grants, too.
//   - If a server forgets a grant within 10 ms of confirming it, the next caller of the
//     holder's process can still begin under that grant.
//   - A master that is cut off together with some of its clients continues to grant
//     keys to them, while the other servers choose another master.
//   - A server ends leases early if its clock is set forward. A promoted replica does
//     so if its clock is ahead.
//   - A quorum ends leases early if clocks are set forward on all servers that the
//     holder's majority shares with some other majority. If all clients reach all
//     servers, the clocks of a majority of the servers have to be set forward. If each
//     client is cut off from some servers, one server can be enough.
//   - A server whose clock is faster than the holder's by more than the margin ends
//     leases before their holders learn of the loss.
//   - Tokens go back if the server's clock is set back while the key is absent, or
//     while it has only a tombstone.
//   - If another program deletes a key between the SET of a lock and the TIME that
//     gives the lock's token, the deleted lock can have a greater token than the next
//     lock.
//   - If the server's clock is set back, a dead holder's plain key stays taken longer
//     by the same amount. So does a dead holder's key with `WithRedisson`.
//   - With plain keys and `WithRedisson`, an acquire that arrives after its own release
//     takes the key for at most one TTL.
//   - Tokens of `WithRedisson` repeat if their counter is lost, by a failover or by
//     `RFencedLock.delete()` in Java.
//   - A key on a Ring that is disguised as another client has two holders if processes
//     see different servers.
//   - If a process dies between the effect of a run and the save of its answer, the
//     work is run again, and the effect happens again.
//   - A run whose begin gets no answer looks like a run that died. It does so from the
//     expiry of its lease until the clean-up undoes the run.
//   - Some clients do not compare owners, such as ShedLock without `safeUpdate`. A late
//     unlock of such a client frees a plain key that the kit holds, and a late
//     extension takes the key over.
//
// Under the first nine limits, a resource that compares tokens still rejects a holder's
// writes after it has seen a newer token. The copies of a machine can have the same
// token.
//
// GUARANTEES.md beside this file lists each promise with its tests. PROOF.md lists the
// hazards, each with its defence and the test that shows it. DESIGN.md explains why the
// kit is built this way.
package core
