package guard

import "time"

// flushHold is the maximum time for which a flush is held back. A response that is
// complete by then is stored before it is sent. Otherwise it is a stream.
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

// Late sends the response that was held back for flushHold. It does not wait for the
// handler, which may write nothing for a long time.
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
		outer.Late() // the outer Recorder has just begun to hold the same flush
	}
}

// end stops the timer when the handler has returned or panicked. A response that is
// still held back is sent after it was stored.
func (w *Recorder) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
