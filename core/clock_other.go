//go:build !linux

package core

// suspendClock is nil where no clock is known that counts suspension.
var suspendClock func() moment
