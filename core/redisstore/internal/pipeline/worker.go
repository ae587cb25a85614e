package pipeline

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxBatch is how many calls go in one pipeline.
	maxBatch = 128
	// plenty is how many calls have to wait for a worker not to wait for more.
	plenty = maxBatch / 2
	// maxBytes is how much text goes in one pipeline.
	maxBytes = 64 << 10
)

// worker sends the calls that wait in its sender, one batch after the other, until
// none is left. The sender's mutex guards all of it but sending.
type worker struct {
	sender *sender
	since  time.Duration // when the batch under way began, or the last one ended
	batch  []*Call
	ctx    *batchContext // the client's
	clean  bool          // the client is done with the batch

	more chan struct{} // receives when it goes on, closed when it ends

	// To be used again.
	cmds  []redis.Cmder
	pipe  redis.Pipeliner
	clock *clock
}

// start has w begin on a goroutine of its own.
func (w *worker) start() {
	if w.more != nil {
		w.more <- struct{}{}
		return
	}
	w.more = make(chan struct{}, 1)
	go w.work()
}

// work sends batches while there are calls. Where calls went together their callers have
// just been woken. They run first, so that their next calls go together too, unless
// many wait already.
func (w *worker) work() {
	s := w.sender
	for many := false; ; {
		s.mu.Lock()
		if many && len(s.queue) < plenty {
			s.mu.Unlock()
			runtime.Gosched()
			s.mu.Lock()
		}
		more := w.take()
		s.mu.Unlock()
		if more {
			many = len(w.batch) > 1
			w.clean = w.send()
		} else if _, more = <-w.more; !more {
			return
		}
	}
}

// workOnce sends the batch that w has, and leaves later calls to another worker.
func (w *worker) workOnce() {
	s := w.sender
	w.clean = w.send()
	s.mu.Lock()
	var next *worker
	w.drop()
	s.dismiss(w)
	s.once = w
	if len(s.queue) > 0 {
		next = s.engage(s.now(), false)
	}
	s.mu.Unlock()
	if next != nil {
		next.start()
	}
}

// take gives w the calls that wait. If there are none w is idle for a while, since
// a goroutine that is woken costs less than a new one with its stack.
func (w *worker) take() bool {
	s := w.sender
	w.drop()
	if len(s.queue) == 0 {
		s.dismiss(w)
		if w.since = s.now(); len(s.idle) < maxBeside && !s.closed {
			s.idle = append(s.idle, w)
		} else {
			close(w.more)
		}
		return false
	}
	s.together = len(s.queue) > 1
	// The client may compare its deadline to the wall clock, which can have been set
	// since the sender was born.
	now := time.Now()
	w.since, w.batch, s.queue, s.spare = now.Sub(s.born), s.queue, s.spare, nil
	if n := fitting(w.batch); n < len(w.batch) {
		s.queue = append(s.queue, w.batch[n:]...)
		clear(w.batch[n:])
		w.batch = w.batch[:n]
	}
	w.ctx = newBatchContext(w.batch, now, w.since)
	return true
}

// fitting is how many of the calls go together. A long value goes alone, so as
// not to hold up others.
func fitting(all []*Call) int {
	bytes := 0
	for i, c := range all {
		if bytes += c.length; i > 0 && (i == maxBatch || bytes > maxBytes) {
			return i
		}
	}
	return len(all)
}

// drop takes the calls from w that have come back.
func (w *worker) drop() {
	s := w.sender
	if w.ctx != nil {
		w.ctx.end(context.Canceled)
	}
	if w.clean && s.own {
		for _, c := range w.batch {
			c.part()
		}
	}
	if s.spare == nil {
		clear(w.batch)
		s.spare = w.batch[:0]
	}
	w.batch, w.ctx = nil, nil
}

// expire gives up the calls of w that have taken too long.
func (w *worker) expire(now time.Duration) {
	for _, c := range w.batch {
		c.expire(now)
	}
	if w.ctx != nil && w.sender.born.Add(now).After(w.ctx.until) {
		w.ctx.end(context.DeadlineExceeded)
	}
}

// send sends the batch and tells the callers when it has come back. It is clean if
// the client has not failed: a hook that gives up on a pipeline may leave it under
// way.
func (w *worker) send() (clean bool) {
	var err error
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in the client: %v", r)
		}
		if clean = err == nil || err == redis.Nil; !clean {
			w.clock = nil // a hook may have left that under way
		}
		for _, c := range w.batch {
			if !clean && !c.told.Load() && c.Cmd.Err() == nil {
				c.Cmd.SetErr(err)
			}
			c.tell()
		}
	}()
	client := w.sender.client
	batch, timed := w.cmds[:0], false
	if len(w.batch) == 1 {
		c := w.batch[0]
		if c.state.abandoned() {
			err = errLeft
			return
		}
		if !c.timed {
			err = client.Process(w.ctx, c)
			return
		}
		batch, timed = append(batch, c), true
	} else {
		for _, c := range w.batch {
			if c.joined = true; c.state.batch() {
				batch = append(batch, c)
				timed = timed || c.timed
			}
		}
	}
	if timed {
		if w.clock == nil {
			w.clock = new(clock)
		}
		batch = append(batch, w.clock.ready(w.ctx, w.batch))
	}
	if w.pipe == nil || !w.sender.own {
		w.pipe = client.Pipeline()
	}
	_ = w.pipe.BatchProcess(w.ctx, batch...) // that of go-redis copies it
	if w.sender.own {
		clear(batch)
		w.cmds = batch
	}
	_, err = w.pipe.Exec(w.ctx)
	return
}
