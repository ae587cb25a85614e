package pipeline

import (
	"time"
	"unsafe"
)

// CallSize is the size of a Call in bytes.
const CallSize = unsafe.Sizeof(Call{})

// Queued returns the number of calls that wait behind others.
func (p *Pipeline) Queued() int {
	p.server.sender.mu.Lock()
	defer p.server.sender.mu.Unlock()
	return len(p.server.sender.queue)
}

// Stall sets the time after which a worker no longer delays the calls behind it. Call
// it before the Pipeline is used.
func (p *Pipeline) Stall(d time.Duration) { p.server.sender.stall = d }

// Enough sets the number of waiting calls that start another worker. Call it before the
// Pipeline is used.
func (p *Pipeline) Enough(n int) { p.server.sender.enough = n }

// Patient makes the time limit of a call a minute. On a busy machine the usual limit
// can make a test fail. Call it before the Pipeline is used, with a client whose
// time-outs are as long.
func (p *Pipeline) Patient() { p.server.sender.limit = time.Minute }

// Down returns the error of the connection if the server is known to be down.
func (p *Pipeline) Down() error { return p.server.gate.Why() }

// Unused reports whether there are no workers, neither working nor idle ones.
func (p *Pipeline) Unused() bool {
	if p.server != nil {
		return p.server.sender.unused()
	}
	unused := true
	p.masters.Range(func(_, to any) bool {
		unused = unused && to.(*server).sender.unused()
		return true
	})
	return unused
}

// Age makes the last use of each master's server two minutes older, and returns the
// number of servers.
func (p *Pipeline) Age() (servers int) {
	p.masters.Range(func(_, to any) bool {
		to.(*server).used.Add(-int64(2 * time.Minute))
		servers++
		return true
	})
	return servers
}
