// Package named provides locks by name for libraries whose interface is Lock(ctx, name)
// and Unlock(ctx, name). It has variations for libraries with smaller interfaces.
//
//	Locks   caddyserver/certmagic: Locker, TryLocker, LockLeaseRenewer
//	DB      pressly/goose: lock.Locker, for migrations that every replica starts
//	Plain   gofiber/fiber: idempotency.Locker
//	Seen    ThreeDotsLabs/watermill: ExpiringKeyRepository
//
// If you have a choice, use core.Locker.Do, which cancels the context of the work when
// the lock is lost. A lock by name cannot notify the work of a loss. The process that
// took the name learns of the loss from Unlock, or from a call of RenewLockLease.
package named
