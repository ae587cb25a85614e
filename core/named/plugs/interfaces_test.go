package plugs_test

import (
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/caddyserver/certmagic"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/pressly/goose/v3/lock"

	"github.com/lockkit/lockkit/core/named"
)

// These lines do not compile if an interface has got a method that the type lacks.
var (
	_ certmagic.Locker                 = (*named.Locks)(nil)
	_ certmagic.TryLocker              = (*named.Locks)(nil)
	_ certmagic.LockLeaseRenewer       = (*named.Locks)(nil)
	_ lock.Locker                      = (*named.DB)(nil)
	_ idempotency.Locker               = (*named.Plain)(nil)
	_ middleware.ExpiringKeyRepository = (*named.Seen)(nil)
)
