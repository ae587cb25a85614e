package redlock

import (
	"sync"
	"time"
)

const (
	restFor = time.Second // how long a worker waits for more to do, at least
	maxIdle = 64          // workers that wait
)

// workers are goroutines that call nodes. One that has nothing to do rests for a
// while, since to wake one costs less than to grow the stack of a new one.
type workers struct {
	mu     sync.Mutex
	idle   []*worker // who came last is first to go again
	closed bool
	timer  *time.Timer // looks for those that have rested for long; nil if none rests
}

type worker struct {
	since time.Time
	more  chan func() // closed when it ends
}

// start has a worker call fn, which Close waits for.
func (s *Store) start(fn func()) {
	p := &s.workers
	p.mu.Lock()
	n := len(p.idle)
	if n == 0 {
		p.mu.Unlock()
		s.run(func() { s.toil(fn) })
		return
	}
	w := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	p.mu.Unlock()
	w.more <- fn
}

// toil calls fn, and what comes after it.
func (s *Store) toil(fn func()) {
	w := &worker{more: make(chan func(), 1)}
	for ok := true; ok; fn, ok = <-w.more {
		fn()
		if fn = nil; !s.rest(w) {
			return
		}
	}
}

// rest is false if w is not to wait for more.
func (s *Store) rest(w *worker) bool {
	p := &s.workers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		return false
	}
	w.since = time.Now()
	p.idle = append(p.idle, w)
	if p.timer == nil {
		p.timer = time.AfterFunc(restFor, s.dismiss)
	}
	return true
}

// dismiss ends workers that have rested for long.
func (s *Store) dismiss() {
	p := &s.workers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	n, now := 0, time.Now()
	for n < len(p.idle) && now.Sub(p.idle[n].since) >= restFor {
		close(p.idle[n].more)
		n++
	}
	left := append(p.idle[:0], p.idle[n:]...)
	clear(p.idle[len(left):])
	if p.idle = left; len(left) == 0 {
		p.timer = nil
		return
	}
	p.timer.Reset(restFor)
}

// dismissAll ends all that rest. Nobody rests from then on.
func (s *Store) dismissAll() {
	p := &s.workers
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, w := range p.idle {
		close(w.more)
	}
	p.idle = nil
	if p.timer != nil {
		p.timer.Stop()
	}
}
