package storetest

import "time"

// tick is the maximum time by which a hold may expire early, because TTLs are whole
// milliseconds.
const tick = time.Millisecond

var expiryCases = []testCase{
	{"hold expires after its TTL", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(5)
		passed := e.stopwatch()
		g := e.acquire(e.store, c)
		valid := c.TTL
		if g.Valid > 0 {
			valid = g.Valid
		}
		e.becomesFree(e.other, e.exclusive())
		if at := passed(); at < valid-tick {
			e.Errorf("another owner got in after %v, the grant was for %v", at, valid)
		}
	}},
	{"extended hold expires after its TTL", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(13)
		e.acquire(e.store, c)
		e.sleep(e.units(3))
		passed := e.stopwatch()
		x := e.extension(e.store, c)
		if x.Err != nil {
			e.Fatalf("extend: got %v, want an extension", x.Err)
		}
		valid := c.TTL
		if x.Valid > 0 {
			valid = x.Valid
		}
		e.becomesFree(e.other, e.exclusive())
		if at := passed(); at < valid-tick {
			e.Errorf("another owner got in after %v, the extension was for %v", at, valid)
		}
	}},
	{"expired hold cannot be extended", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.notExtended(e.store, c)
		e.isFree()
	}},
	{"expired hold cannot be released", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.notReleased(e.store, c)
		e.isFree()
	}},
	{"expired hold beside its successor", nil, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		g := e.acquire(e.other, next)
		e.notExtended(e.store, c)
		e.notReleased(e.store, c)
		e.isHeld()
		e.sameToken(e.other, next, g.Token)
		e.extend(e.other, next)
	}},
	{"extension beside a crashed reader", []Feature{Shared}, func(e *env) {
		crashed, alive := e.reader(), e.reader()
		crashed.TTL, alive.TTL = e.units(1), e.long
		e.acquire(e.store, crashed)
		e.acquire(e.other, alive)
		e.extend(e.other, alive)
		e.outlive(crashed.TTL)
		e.extend(e.other, alive)
		e.notExtended(e.store, crashed)
		e.busy(e.store, e.exclusive())
		e.release(e.other, alive)
		e.isFree()
	}},
	{"one reader of two expires", []Feature{Shared}, func(e *env) {
		short, long := e.reader(), e.reader()
		short.TTL = e.units(1)
		e.acquire(e.store, long)
		e.acquire(e.other, short)
		e.outlive(short.TTL)
		e.busy(e.other, e.exclusive())
		e.extend(e.store, long)
	}},
	{"expired permits make room", []Feature{Permits}, func(e *env) {
		crashed := e.permits(2, 3)
		crashed.TTL = e.units(1)
		e.acquire(e.store, crashed)
		e.acquire(e.store, e.permits(1, 3))
		e.outlive(crashed.TTL)
		e.acquire(e.other, e.permits(2, 3))
		e.busy(e.other, e.permits(1, 3))
	}},
	{"expired claim repeated beside its successor", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.acquire(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.other, e.exclusive())
		if _, err := e.store.Acquire(e.Context(), c); err == nil {
			e.Error("acquire: granted beside its successor")
		}
	}},
}
