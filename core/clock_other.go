//go:build !linux

package core

import "time"

// suspendClock is nil where no clock is known that counts suspension.
var suspendClock func() time.Duration
