package storetest

import "github.com/lockkit/lockkit/core/store"

// savingCases test the step that saves a record and releases the hold.
var savingCases = []testCase{
	// The second release gets the same result as the first.
	{"answer saved twice", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		for range 3 {
			e.release(e.store, e.done(c, "answer"))
		}
		e.release(e.other, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
		e.isFree()
		e.key += ":failed"
		c = e.run("begun")
		e.begins(e.store, c, "begun", 1)
		for range 3 {
			e.release(e.store, e.failed(c, "failed", 1))
		}
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"answer saved twice beside a holder", []Feature{Records}, func(e *env) {
		c, plain := e.run("begun"), e.exclusive()
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.acquire(e.other, plain)
		e.release(e.store, e.done(c, "answer"))
		e.isHeld()
		e.extend(e.other, plain)
	}},
	{"answer with Keep saved twice", []Feature{Records, Keeping}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, keeping(e.done(c, "answer"), e.units(1)))
		e.release(e.store, keeping(e.done(c, "answer"), e.long))
		e.outlive(e.units(1))
		e.isFree()
	}},
	// A repeated release fails with ErrLost if another run has begun since.
	{"failure saved again after a run", []Feature{Records}, func(e *env) {
		c, next := e.run("begun"), e.run("again")
		first := e.failed(c, "failed", 1)
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, first)
		e.begins(e.other, next, "failed", 2)
		e.notReleased(e.store, first)
		e.release(e.other, e.failed(next, "failed", 1))
		e.notReleased(e.store, first)
		e.begins(e.other, e.run("once more"), "failed", 2)
	}},
	{"plain release after an answer", []Feature{Records}, func(e *env) {
		c, plain := e.run("begun"), store.Claim{}
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		plain = c
		plain.Record = nil
		e.notReleased(e.store, plain)
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"second release with another answer", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.notReleased(e.store, e.done(c, "another"))
		e.notReleased(e.store, e.failed(c, "answer", 1))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"waiting claim saves nothing", []Feature{Records}, func(e *env) {
		c, w := e.run("begun"), e.run("waits")
		w.Wait = true
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, w)
		e.notReleased(e.other, e.done(w, "strange"))
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"plain hold saves a record", []Feature{Records}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
		e.isFree()
	}},
	{"record with a Retain of zero", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		last := e.failed(c, "failed", 1)
		last.Record.Retain = 0
		e.release(e.store, last)
		e.begins(e.other, e.run("anew"), "anew", 1)
	}},
	{"record with a shorter Retain", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		last := e.done(c, "answer")
		last.Record.Retain = e.units(2)
		e.release(e.store, last)
		e.outlive(last.Record.Retain)
		e.begins(e.other, e.run("anew"), "anew", 1)
	}},
	{"extension never shortens a record", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.TTL = e.units(9)
		e.begins(e.store, c, "begun", 1)
		c.TTL = e.units(10)
		e.extend(e.store, c)
		e.outlive(c.TTL)
		e.begins(e.other, e.run("again"), "begun", 2)
	}},
	{"run outlasts its record", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.Record.Retain = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.Record.Retain)
		e.busy(e.other, e.run("again"))
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"waiting fair run has its place", []Feature{Records, Fair}, func(e *env) {
		c, w := e.exclusive(), e.run("begun")
		w.Fair, w.Wait = true, true
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.store, c)
		e.busy(e.store, e.fair())
		e.begins(e.other, w, "begun", 1)
	}},
	{"record wakes fair run and waiter", []Feature{Records, Fair, Watching}, func(e *env) {
		c, answered, admitted := e.run("begun"), e.run("again"), e.waiting()
		answered.Wait, answered.Fair = true, true
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, answered)
		e.busy(e.other, admitted)
		first, second := e.watch(e.other, answered), e.watch(e.other, admitted)
		e.release(e.store, e.done(c, "answer"))
		e.wakes(first)
		e.wakes(second)
		e.acquire(e.other, admitted)
		e.answered(e.other, answered, "answer")
	}},
}
