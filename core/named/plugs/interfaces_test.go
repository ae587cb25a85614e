package plugs_test

import (
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/caddyserver/certmagic"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/pressly/goose/v3/lock"

	"github.com/lockkit/lockkit/core/named"
)

// The test does not compile if one of these libraries has changed its interface.
var (
	_ certmagic.Locker                 = (*named.Locks)(nil)
	_ certmagic.TryLocker              = (*named.Locks)(nil)
	_ certmagic.LockLeaseRenewer       = (*named.Locks)(nil)
	_ lock.Locker                      = (*named.DB)(nil)
	_ idempotency.Locker               = (*named.Plain)(nil)
	_ middleware.ExpiringKeyRepository = (*named.Seen)(nil)
)
