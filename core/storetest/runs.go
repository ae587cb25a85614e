package storetest

import "github.com/lockkit/lockkit/core/store"

// runCases test the number of runs in a record.
var runCases = []testCase{
	{"first run has its own value", []Feature{Records}, func(e *env) {
		e.begins(e.store, e.run("begun"), "begun", 1)
		e.isHeld()
	}},
	{"run excludes other runs", []Feature{Records}, func(e *env) {
		e.begins(e.store, e.run("begun"), "begun", 1)
		e.busy(e.other, e.run("again"))
		e.isHeld()
	}},
	{"repeated claim is one run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.begins(e.other, c, "begun", 1)
		e.release(e.store, c)
	}},
	{"repeated claim after its expiry", []Feature{Records}, func(e *env) {
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
	{"refused run is not counted", []Feature{Records}, func(e *env) {
		c, late := e.run("begun"), e.run("again")
		e.begins(e.store, c, "begun", 1)
		e.busy(e.other, late)
		e.busy(e.other, late)
		plain := c
		plain.Record = nil
		e.release(e.store, plain)
		e.begins(e.other, late, "begun", 2)
	}},
	// The run is counted, and gets the value that the failed run has saved.
	{"run after a failed run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		second := e.run("again")
		e.begins(e.other, second, "failed", 2)
		e.release(e.other, e.failed(second, "failed twice", 2))
		e.begins(e.store, e.run("again"), "failed twice", 3)
	}},
	// The run is counted, and gets the value of the first run.
	{"run after a crash", []Feature{Records}, func(e *env) {
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
	{"run after a plain release", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		c.Record = nil
		e.release(e.store, c)
		e.begins(e.other, e.run("again"), "begun", 2)
	}},
	{"release sets the count", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 7))
		e.begins(e.other, e.run("again"), "failed", 8)
	}},
	{"stale holder beside a run", []Feature{Records}, func(e *env) {
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
	{"stale holder after an answer", []Feature{Records}, func(e *env) {
		stale, next := e.run("begun"), e.run("again")
		stale.TTL = e.units(1)
		e.begins(e.store, stale, "begun", 1)
		e.outlive(stale.TTL)
		e.begins(e.other, next, "begun", 2)
		e.release(e.other, e.done(next, "answer"))
		e.notReleased(e.store, e.done(stale, "stale"))
		e.answered(e.store, e.run("again"), "answer")
	}},
	// A run whose hold has expired saves its answer if no other run has begun.
	{"expired run saves its answer", []Feature{Records}, func(e *env) {
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
	// A run whose hold was released saves its answer if no other run has begun.
	{"released run saves its answer", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		plain := c
		plain.Record = nil
		e.release(e.store, plain)
		e.release(e.store, e.done(c, "answer"))
		e.notReleased(e.store, plain)
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"expired run saves its failure", []Feature{Records}, func(e *env) {
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
	// After its record has expired, an expired run saves nothing.
	{"expired run with expired record", []Feature{Records}, func(e *env) {
		late := e.run("begun")
		late.TTL, late.Record.Retain = e.units(1), e.units(1)
		e.begins(e.store, late, "begun", 1)
		e.outlive(late.TTL)
		e.notReleased(e.store, e.done(late, "late"))
		e.begins(e.other, e.run("anew"), "anew", 1)
	}},
	// After another run has begun, an expired run saves nothing, even if the other run
	// has expired too.
	{"expired run after another run", []Feature{Records}, func(e *env) {
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
	{"expired run after an undone run", []Feature{Records}, func(e *env) {
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
	{"expired run wakes its waiters", []Feature{Records, Watching}, func(e *env) {
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
	{"stranger writes nothing", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.notReleased(e.other, e.done(e.run("again"), "strange"))
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"run of a permit", []Feature{Records, Permits}, func(e *env) {
		c := e.permits(1, 2)
		c.Record = &store.Record{Value: []byte("begun"), Retain: e.long}
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"answer with Keep", []Feature{Records, Keeping}, func(e *env) {
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
