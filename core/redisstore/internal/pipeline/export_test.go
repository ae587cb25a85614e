package pipeline

import (
	"context"
	"time"
	"unsafe"
)

// CallSize is the size of a Call in bytes.
const CallSize = unsafe.Sizeof(Call{})

// Queued is how many calls wait behind others.
func (p *Pipeline) Queued() int {
	p.server.sender.mu.Lock()
	defer p.server.sender.mu.Unlock()
	return len(p.server.sender.queue)
}

// Stall sets when a worker no longer holds up the calls behind it. Call it before
// the Pipeline is used.
func (p *Pipeline) Stall(d time.Duration) { p.server.sender.stall = d }

// Enough sets how many calls have to wait for another worker. Call it before the
// Pipeline is used.
func (p *Pipeline) Enough(n int) { p.server.sender.enough = n }

// AbandonUnsent is the end of a call whose caller left before a worker took it, which
// has come back since.
func (p *Pipeline) AbandonUnsent(ctx context.Context) error {
	c := p.SetNX([]byte("key"), []byte("value"), 1)
	c.done = make(chan struct{}, 1)
	c.state.leave()
	c.tell()
	return p.server.sender.abandon(ctx, c)
}

// StepWallClock has the Pipeline believe that the wall clock was set forward by so many
// seconds since it was made.
func (p *Pipeline) StepWallClock(seconds int64) {
	// A time.Time that has a monotonic reading has the wall clock's seconds in the 33
	// bits above its nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&p.server.sender.born))
	*wall -= uint64(seconds) << 30
}

// Unused tells that nothing is under way.
func (p *Pipeline) Unused() bool { return p.server.sender.unused() }
