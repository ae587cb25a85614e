// Package storetest contains the contract of store.Store in the form of tests. A store
// must pass Run. The test of a store takes a dozen lines:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			New: func(t testing.TB) func() store.Store {
//				return func() store.Store { return mystore.New(connect(t)) }
//			},
//			Unit: 200 * time.Millisecond,
//		})
//	}
//
// Faulty is also for users of locks. It wraps a store, such as a memstore, and loses,
// delays or repeats calls as a test requires. So a service can test its reaction to a
// failing store.
//
// # What the suite adds to the documentation of store.Store
//
// Key and Lease identify a hold. Extend and Release ignore Owner, which a join may have
// changed. They also ignore Via, Weight and Limit.
//
// Every hold counts in the admission rule, even if one owner has several.
//
// The heaviest live hold of an owner limits the weight of a further claim of this
// owner. Fair waiters do not keep such a claim out, but the weights of other owners do.
//
// Only a claim of weight All has a token. A reader that joins an exclusive hold gets
// the token 0. A repeated claim of a held key with a higher MinToken raises the token
// for all holds of the owner. The store.TokenStep-1 tokens after the raised token then
// belong to the grant. The token of a later grant is greater than all these tokens,
// even if MinToken has raised them above the store's clock.
//
// Every token that belongs to a grant is below 2^53. A MinToken with which a token of
// the grant would reach 2^53 is refused with ErrInvalid. The error states the allowed
// range. A store may also refuse a MinToken above 2^51, because a key with tokens just
// below 2^53 could never be granted again.
//
// Release leaves a tombstone for every lease that is not held. This includes a lease
// that waits, because a repeated Acquire of the lease can still be in flight. A lease
// that was released while held needs no tombstone. A caller may have sent an Acquire
// twice without knowing the outcome of the first request. It then releases until the
// answer is ErrLost.
//
// Release with Keep counts the time Keep from the release. Keep can be longer or shorter
// than the rest of the hold's TTL. The weight of the hold stays taken. The first request
// after the time Keep is granted.
//
// Extend does nothing for a waiting claim, because the claim has no hold.
//
// Four events wake a waiting claim that would be admitted at that moment: a release, a
// revoke, a grant that leaves room, and a waiter that leaves. A finished record wakes
// all waiting claims that it answers. A fair waiter is woken by each such event until
// it is admitted or leaves. Any other waiter is forgotten when such an event wakes it,
// and has to ask again. If a release with Keep wakes a waiter that cannot be admitted
// yet, the waiter keeps its place.
//
// A stored record does not answer a claim without a record. If a claim with a record is
// sent again while it is held, it begins no further run. After its hold has expired,
// the claim begins a further run in two cases: another run has begun, or its own run is
// finished or expired. A finished record answers before tombstones, holds and waiters
// are checked.
//
// Undo does not change the other effects of a release. A release of a lease that is not
// held gets ErrLost and leaves a tombstone, even if it has undone a run.
//
// A revoke leaves no tombstone and undoes no run. The rest of the hold's time counts
// from the step that revokes the hold, whatever Look showed before.
//
// A lease that has saved a record needs no tombstone, and a release that saves the
// record again leaves none.
package storetest
