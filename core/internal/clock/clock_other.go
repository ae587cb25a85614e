//go:build !linux

package clock

// System is the clock of this machine: nil where none is known that counts suspension.
var System Clock
