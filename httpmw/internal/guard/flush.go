package guard

import "time"

// flushHold is how long a flush is held back at most. A response that is complete by
// then is stored before it is sent; after that it is a stream.
const flushHold = time.Second

func (w *Recorder) Flush() {
	w.lock()
	defer w.mu.Unlock()
	if w.sealed {
		return
	}
	w.begin()
	if w.passing {
		w.Writer.Flush()
		return
	}
	w.log.add(callFlush, 0)
	if w.timer == nil {
		w.timer = time.AfterFunc(flushHold, w.Late)
	}
}

// Late sends what was held back for flushHold, without waiting for the handler, which
// may have nothing to write for long.
func (w *Recorder) Late() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passing || w.ended || w.sealed {
		return
	}
	defer func() { w.panicked = recover() }()
	w.send()
	if w.log.short {
		w.Writer.Flush()
	}
	if outer, ok := w.Writer.(interface{ Late() }); ok {
		outer.Late() // it has just begun to hold the same flush
	}
}

// end is called when the handler has returned or panicked. What is held back by then
// waits until it is stored.
func (w *Recorder) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
