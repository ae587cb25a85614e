// Package named has locks by name for libraries that ask for Lock(ctx, name) and
// Unlock(ctx, name), and small variations for some that ask for less.
//
//	Locks   caddyserver/certmagic: Locker, TryLocker, LockLeaseRenewer
//	DB      pressly/goose: lock.Locker, for migrations that every replica starts
//	Plain   gofiber/fiber: idempotency.Locker
//	Seen    ThreeDotsLabs/watermill: ExpiringKeyRepository
//
// Where there is a choice, core.Locker.Do is better: it cancels the context of the work
// when the lock is lost. A lock by name cannot notify the work. The process that took
// it learns of a loss from Unlock, and from RenewLockLease if it asks.
package named
