package storetest

import "github.com/lockkit/lockkit/core/store"

// runCases test the number of runs in a record.
var runCases = []testCase{
	{"a first run begins with the value of its claim", []Feature{Records}, func(e *env) {
		e.begins(e.store, e.run("begun"), "begun", 1)
		e.isHeld()
	}},
	{"a run in progress keeps others out", []Feature{Records}, func(e *env) {
		e.begins(e.store, e.run("begun"), "begun", 1)
		e.busy(e.other, e.run("again"))
		e.isHeld()
	}},
	{"the same claim again does not count as a run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.begins(e.other, c, "begun", 1)
		e.release(e.store, c)
	}},
	{"the same claim again after its hold has expired does not count as a run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		c.TTL = e.long
		e.begins(e.other, c, "begun", 1)
		e.isHeld()
		e.release(e.store, e.failed(c, "failed", 1))
		second := e.run("again")
		second.TTL = e.units(1)
		e.begins(e.other, second, "failed", 2)
		e.outlive(second.TTL)
		e.begins(e.store, second, "failed", 2)
		e.release(e.store, e.done(second, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"a run that was refused does not count", []Feature{Records}, func(e *env) {
		c, late := e.run("begun"), e.run("again")
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, late)
		e.busy(e.other, late)
		plain := c
		plain.Record = nil
		e.release(e.store, plain)
		e.begins(e.other, late, "begun", 2)
	}},
	{"a run after a failed one is counted and finds what that left", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		second := e.run("again")
		e.begins(e.other, second, "failed", 2)
		e.release(e.other, e.failed(second, "failed twice", 2))
		e.begins(e.store, e.run("again"), "failed twice", 3)
	}},
	{"a run after a crash is counted and finds the first value", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		second := e.run("again")
		second.TTL = e.units(1)
		e.begins(e.other, second, "begun", 2)
		e.outlive(second.TTL)
		e.begins(e.store, e.run("again"), "begun", 3)
	}},
	{"a run after a release without a record is counted", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		c.Record = nil
		e.release(e.store, c)
		e.begins(e.other, e.run("again"), "begun", 2)
	}},
	{"a release sets the count as given", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 7))
		e.begins(e.other, e.run("again"), "failed", 8)
	}},
	{"a stale holder does not overwrite a run in progress", []Feature{Records}, func(e *env) {
		stale, next := e.run("begun"), e.run("again")
		stale.TTL = e.units(1)
		e.begins(e.store, stale, "begun", 1)
		e.outlive(stale.TTL)
		e.begins(e.other, next, "begun", 2)
		e.notReleased(e.store, e.done(stale, "stale"))
		e.busy(e.store, e.run("again"))
		e.release(e.other, e.done(next, "answer"))
		e.answered(e.store, e.run("again"), "answer")
	}},
	{"a stale holder does not overwrite its successor's answer", []Feature{Records}, func(e *env) {
		stale, next := e.run("begun"), e.run("again")
		stale.TTL = e.units(1)
		e.begins(e.store, stale, "begun", 1)
		e.outlive(stale.TTL)
		e.begins(e.other, next, "begun", 2)
		e.release(e.other, e.done(next, "answer"))
		e.notReleased(e.store, e.done(stale, "stale"))
		e.answered(e.store, e.run("again"), "answer")
	}},
	{"a run whose hold has expired saves its answer if no other has begun", []Feature{Records}, func(e *env) {
		late, plain := e.run("begun"), e.exclusive()
		late.TTL = e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		e.acquire(e.other, plain)
		for range 3 {
			e.release(e.store, e.done(late, "answer"))
		}
		e.isHeld()
		e.release(e.other, plain)
		e.notReleased(e.store, e.done(late, "another"))
		e.answered(e.other, e.run("again"), "answer")
		e.isFree()
	}},
	{"a run that was given back saves its answer if no other has begun", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		plain := c
		plain.Record = nil
		e.release(e.store, plain)
		e.release(e.store, e.done(c, "answer"))
		e.notReleased(e.store, plain)
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"a run whose hold has expired saves that it failed", []Feature{Records}, func(e *env) {
		late := e.run("begun")
		late.TTL = e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		e.release(e.store, e.failed(late, "failed", 1))
		second := e.run("again")
		e.begins(e.other, second, "failed", 2)
		e.notReleased(e.store, e.done(late, "late"))
		e.release(e.other, e.done(second, "answer"))
		e.answered(e.store, e.run("again"), "answer")
	}},
	{"a run whose hold has expired saves nothing after its record has ended", []Feature{Records}, func(e *env) {
		late := e.run("begun")
		late.TTL, late.Record.Retain = e.units(1), e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		e.notReleased(e.store, e.done(late, "late"))
		e.begins(e.other, e.run("anew"), "anew", 1)
	}},
	{"a run whose hold has expired saves nothing after another has begun and died", []Feature{Records}, func(e *env) {
		stale, next := e.run("begun"), e.run("again")
		stale.TTL, next.TTL = e.units(1), e.units(1)
		e.begins(e.store, stale, "begun", 1)
		e.outlive(stale.TTL)
		e.begins(e.other, next, "begun", 2)
		e.outlive(next.TTL)
		e.notReleased(e.store, e.done(stale, "stale"))
		e.release(e.other, e.done(next, "answer"))
		e.answered(e.store, e.run("again"), "answer")
	}},
	{"a run whose hold has expired saves its answer after another was undone", []Feature{Records}, func(e *env) {
		late := e.run("begun")
		late.TTL = e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		for range 2 {
			never := e.run("never")
			e.begins(e.other, never, "begun", 2)
			e.notReleased(e.store, e.done(late, "early"))
			e.release(e.other, undone(never))
			e.notReleased(e.other, e.done(never, "never"))
		}
		e.release(e.store, e.done(late, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"an answer that is saved after its hold has expired wakes all its waiters", []Feature{Records, Watching}, func(e *env) {
		late, plain, w := e.run("begun"), e.exclusive(), e.run("again")
		late.TTL = e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		e.acquire(e.store, plain)
		w.Wait = true
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.release(e.store, e.done(late, "answer"))
		e.wakes(woken)
		e.answered(e.other, w, "answer")
	}},
	{"a stranger writes nothing", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.notReleased(e.other, e.done(e.run("again"), "strange"))
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"a run of readers or permits is a run", []Feature{Records, Permits}, func(e *env) {
		c := e.permits(1, 2)
		c.Record = &store.Record{Value: []byte("begun"), Retain: e.long}
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"an answered key can be kept busy as well", []Feature{Records, Keeping}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, keeping(e.done(c, "answer"), e.long))
		e.answered(e.other, e.run("again"), "answer")
		e.isHeld()
	}},
}

// failed returns the claim with which the holder of c releases c and saves an unfinished
// record.
func (e *env) failed(c store.Claim, value string, attempt int) store.Claim {
	c.Record = &store.Record{Value: []byte(value), Attempt: attempt, Retain: e.long}
	return c
}
