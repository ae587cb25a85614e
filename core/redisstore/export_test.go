package redisstore

import (
	"context"
	"time"
	"unsafe"
)

// CommandSize is the size of a command in bytes.
const CommandSize = unsafe.Sizeof(command{})

// Queued is how many calls wait behind others.
func (s *Store) Queued() int {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	return len(s.sender.queue)
}

// Stall sets when a trip no longer holds up the calls behind it. Call it before
// the Store is used.
func (s *Store) Stall(d time.Duration) { s.sender.stall = d }

// Crowd sets how many calls have to wait for another trip to set out. Call it
// before the Store is used.
func (s *Store) Crowd(n int) { s.sender.crowd = n }

// AbandonUnsent is the end of a call whose caller left before a trip set out,
// which has come back since.
func (s *Store) AbandonUnsent(ctx context.Context) error {
	c := new(Store).newCommand(releaseScript, "key", "release")
	c.done = make(chan struct{}, 1)
	c.flight.leave()
	c.sign()
	return s.sender.abandon(ctx, c)
}

// StepWallClock has the Store believe that the wall clock was set forward by so many
// seconds since it was made.
func (s *Store) StepWallClock(seconds int64) {
	// A time.Time that has a monotonic reading has the wall clock's seconds in the 33
	// bits above its nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&s.sender.born))
	*wall -= uint64(seconds) << 30
}

// Idle tells that nothing is under way.
func (s *Store) Idle() bool { return s.sender.idle() }
