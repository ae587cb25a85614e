package storetest

import "github.com/lockkit/lockkit/core/store"

// undoCases test runs that are undone because their work never began.
var undoCases = []testCase{
	{"undone first run leaves no record", []Feature{Records}, func(e *env) {
		c := e.run("never")
		e.begins(e.store, c, "never", 1)
		e.release(e.store, undone(c))
		e.isFree()
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	{"undone run leaves the earlier record", []Feature{Records}, func(e *env) {
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
	{"undone run after a crash", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		e.begins(e.other, never, "begun", 2)
		e.release(e.other, undone(never))
		e.begins(e.store, e.run("again"), "begun", 2)
	}},
	// An undo does not renew the time for which the earlier record is stored.
	{"undone run leaves the retention", []Feature{Records}, func(e *env) {
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
	{"undone run of an expired record", []Feature{Records}, func(e *env) {
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
	// A repeated release of the earlier run is answered like the first release.
	{"record saved again after an undo", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, never, "failed", 2)
		e.release(e.other, undone(never))
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"undone run after a zero count", []Feature{Records}, func(e *env) {
		c, never := e.run("begun"), e.run("never")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "left", 0))
		e.begins(e.other, never, "left", 1)
		e.release(e.other, undone(never))
		e.begins(e.store, e.run("again"), "left", 1)
	}},
	{"undo of an expired run", []Feature{Records}, func(e *env) {
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
	{"undo beside another holder", []Feature{Records}, func(e *env) {
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
	{"undo after another run", []Feature{Records}, func(e *env) {
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
	{"undo after the answer", []Feature{Records}, func(e *env) {
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
	{"run undone twice", []Feature{Records}, func(e *env) {
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
	{"undo of an unknown run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.notReleased(e.other, undone(e.run("strange")))
		e.extend(e.store, c)
		e.release(e.store, e.failed(c, "failed", 1))
		e.notReleased(e.other, undone(e.run("strange")))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"undo of a waiting claim", []Feature{Records, Watching}, func(e *env) {
		c, w := e.run("begun"), e.run("waits")
		w.Wait = true
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, w)
		e.release(e.other, undone(w))
		c.Record = nil
		e.release(e.store, c)
		e.begins(e.other, e.run("again"), "begun", 2)
	}},
	// A run that arrives after its undo is refused, and not counted.
	{"run overtaken by its undo", []Feature{Records, Tombstones}, func(e *env) {
		c := e.run("never")
		e.notReleased(e.store, undone(c))
		e.refused(e.other, c, store.ErrLost)
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	{"undone run repeated after its expiry", []Feature{Records, Tombstones}, func(e *env) {
		c := e.run("never")
		c.TTL = e.units(1)
		e.begins(e.store, c, "never", 1)
		e.outlive(c.TTL)
		c.TTL = e.long
		e.notReleased(e.store, undone(c))
		e.refused(e.other, c, store.ErrLost)
		e.begins(e.other, e.run("begun"), "begun", 1)
	}},
	// An undo of a hold that began no run only releases the hold.
	{"undo of a plain hold", []Feature{Records}, func(e *env) {
		c, plain := e.run("begun"), e.exclusive()
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.acquire(e.other, plain)
		e.release(e.other, undone(plain))
		e.isFree()
		e.begins(e.store, e.run("again"), "failed", 2)
	}},
	{"undo with a record", []Feature{Records}, func(e *env) {
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
