// Package storetest is the contract of store.Store in the form of tests: a store
// is what passes Run. A store's own test is a dozen lines:
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
// Faulty is for users as well: it wraps a store, such as a memstore, and loses, delays
// or repeats calls as a test says. So a service can test what it does when its store
// fails.
//
// # What the suite adds to the words of store.Store
//
// A hold is found by Key and Lease. Extend and Release look neither at Owner,
// which a join may have changed, nor at Via, Weight or Limit.
//
// Every hold counts in the admission rule, also several holds of one owner.
//
// The heaviest live hold of an owner decides whether it may enter again. Fair waiters do
// not hold it up then; the weights of other owners do.
//
// Only a claim of All has a token. A reader inside its owner's exclusive hold
// gets 0. Asking again for a held key with a higher MinToken raises the token,
// for all holds of the owner; the store.TokenStep-1 tokens after that one are the
// grant's then. Tokens stay above the last that belongs to a grant, also where
// MinToken put it ahead of the store's clock.
//
// Every token that belongs to a grant is below 2^53. A MinToken from which a grant
// would reach that is refused with ErrInvalid, and the error says what is allowed. A
// store may refuse one above 2^51 too: a key with tokens just below 2^53 could never
// be granted again.
//
// Release plants a tombstone for every lease that it does not find held, also
// if it waited: a repetition of its Acquire may still be on the way. A lease
// that was released while held needs none. A caller that sent an Acquire twice, and does
// not know the outcome of the first one, releases until the answer is ErrLost.
//
// Release with Keep counts the time from the release. That can be more or less than
// the hold had left. The weight that stays is that of the hold.
//
// Extend does nothing for a claim that waits: it has no hold.
//
// A waiting claim is woken if it would be admitted at that moment: by a
// release, by a grant that leaves room, by a waiter that leaves, and by a finished
// record, which answers all claims for it. A fair waiter is woken each time until it is
// admitted or leaves. Any other is forgotten when it is woken, and has to ask again.
//
// A claim without a record is not answered by one. A claim with a record that
// is sent again begins no further run while it is held. Nor does it later, as long as
// its run is the last one and not finished, unless the record has ended meanwhile. A
// finished record answers before tombstones, holds and waiters are looked at.
//
// Undo changes nothing else in a release: a lease that is not held is answered
// with ErrLost and leaves its tombstone, whether a run was taken back or not.
//
// A revoke leaves no tombstone and takes back no run. The time that is left of a hold
// is that in the step that revokes it, whatever was shown before.
//
// A lease that has saved a record needs no tombstone, and a release that saves
// it again plants none.
package storetest
