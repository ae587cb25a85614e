package storetest

import "github.com/lockkit/lockkit/core/store"

// undoCases test runs that are undone because their work never began.
var undoCases = []testCase{
	{"a first run that is undone leaves no record", []Feature{Records}, func(e *env) {
		c := e.run("never")
		e.begins(e.store, c, "never", 1)
		e.release(e.store, undone(c))
		e.isFree()
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	{"a second run that is undone leaves what it found", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		for range 3 {
			never := e.run("never")
			e.begins(e.other, never, "failed", 2)
			e.release(e.other, undone(never))
		}
		e.begins(e.store, e.run("again"), "failed", 2)
	}},
	{"a run after a crash that is undone leaves the count of the crash", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		e.begins(e.other, never, "begun", 2)
		e.release(e.other, undone(never))
		e.begins(e.store, e.run("again"), "begun", 2)
	}},
	{"a run that is undone leaves a record its end", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		last := e.failed(c, "failed", 1)
		last.Record.Retain = e.units(10)
		e.release(e.store, last)
		e.begins(e.other, never, "failed", 2)
		e.release(e.other, undone(never))
		e.outlive(last.Record.Retain)
		e.begins(e.store, e.run("anew"), "anew", 1)
	}},
	{"a run that is undone after the end of what it found leaves no record", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		last := e.failed(c, "failed", 1)
		last.Record.Retain = e.units(10)
		e.release(e.store, last)
		e.begins(e.other, never, "failed", 2)
		e.outlive(last.Record.Retain)
		e.extend(e.other, never)
		e.release(e.other, undone(never))
		e.begins(e.store, e.run("anew"), "anew", 1)
	}},
	{"a run that is undone leaves what was saved before it to callers that save it again", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, never, "failed", 2)
		e.release(e.other, undone(never))
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"a run that is undone leaves a record that counts none", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "left", 0))
		e.begins(e.other, never, "left", 1)
		e.release(e.other, undone(never))
		e.begins(e.store, e.run("again"), "left", 1)
	}},
	{"a run is undone after its hold has expired", []Feature{Records}, func(e *env) {
		first, second := e.run("never"), e.run("never")
		first.TTL, second.TTL = e.units(1), e.units(1)
		e.begins(e.store, first, "never", 1)
		e.outlive(first.TTL)
		e.notReleased(e.other, undone(first))
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, second, "failed", 2)
		e.outlive(second.TTL)
		e.notReleased(e.store, undone(second))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"a run is undone after its hold has expired while another owner holds the key", []Feature{Records}, func(e *env) {
		never, plain := e.run("never"), e.exclusive()
		never.TTL = e.units(1)
		e.begins(e.store, never, "never", 1)
		e.outlive(never.TTL)
		e.acquire(e.other, plain)
		e.notReleased(e.store, undone(never))
		e.isHeld()
		e.release(e.other, plain)
		e.begins(e.store, e.run("begun"), "begun", 1)
	}},
	{"a run is not undone after another one has begun", []Feature{Records}, func(e *env) {
		stale, next := e.run("begun"), e.run("again")
		stale.TTL = e.units(1)
		e.begins(e.store, stale, "begun", 1)
		e.outlive(stale.TTL)
		e.begins(e.other, next, "begun", 2)
		e.notReleased(e.store, undone(stale))
		e.isHeld()
		e.extend(e.other, next)
		next.Record = nil
		e.release(e.other, next)
		e.notReleased(e.store, undone(stale))
		e.begins(e.store, e.run("once more"), "begun", 3)
	}},
	{"a run is not undone after its answer was saved", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.notReleased(e.store, undone(c))
		e.answered(e.other, e.run("again"), "answer")
		e.key += ":failed"
		c = e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.notReleased(e.store, undone(c))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"a run that is undone twice is taken back once", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 3))
		e.begins(e.other, never, "failed", 4)
		e.release(e.other, undone(never))
		for range 3 {
			e.notReleased(e.store, undone(never))
		}
		e.begins(e.store, e.run("again"), "failed", 4)
	}},
	{"an undo of what was never seen touches no record", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.notReleased(e.other, undone(e.run("strange")))
		e.extend(e.store, c)
		e.release(e.store, e.failed(c, "failed", 1))
		e.notReleased(e.other, undone(e.run("strange")))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"an undo of a claim that only waits touches no record", []Feature{Records, Watching}, func(e *env) {
		c, w := e.run("begun"), e.run("waits")
		w.Wait = true
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, w)
		e.release(e.other, undone(w))
		c.Record = nil
		e.release(e.store, c)
		e.begins(e.other, e.run("again"), "begun", 2)
	}},
	{"a run that its undo has overtaken is refused and does not count", []Feature{Records, Tombstones}, func(e *env) {
		c := e.run("never")
		e.notReleased(e.store, undone(c))
		e.refused(e.other, c, store.ErrLost)
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	{"a run that is undone after its hold has expired is refused when it comes again", []Feature{Records, Tombstones}, func(e *env) {
		c := e.run("never")
		c.TTL = e.units(1)
		e.begins(e.store, c, "never", 1)
		e.outlive(c.TTL)
		c.TTL = e.long
		e.notReleased(e.store, undone(c))
		e.refused(e.other, c, store.ErrLost)
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	{"an undo leaves a hold that began no run as a release does", []Feature{Records}, func(e *env) {
		c, plain := e.run("begun"), e.exclusive()
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.acquire(e.other, plain)
		e.release(e.other, undone(plain))
		e.isFree()
		e.begins(e.store, e.run("again"), "failed", 2)
	}},
	{"an undo that saves a record saves it", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		last := e.failed(c, "failed", 1)
		last.Undo = true
		e.release(e.store, last)
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
}

// undone returns the claim with which the holder of c releases c if the work has not
// begun.
func undone(c store.Claim) store.Claim {
	c.Record, c.Undo = nil, true
	return c
}
