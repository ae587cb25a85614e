package storetest

import "github.com/lockkit/lockkit/core/store"

var releaseCases = []testCase{
	{"a stranger cannot release", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.notReleased(e.other, e.exclusive())
		if e.can(Reentry) {
			e.notReleased(e.other, nested(c))
		}
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"a release gives up one hold of several", []Feature{Shared}, func(e *env) {
		a, b := e.reader(), e.reader()
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.release(e.store, a)
		e.notExtended(e.store, a)
		e.extend(e.store, b)
		e.isHeld()
	}},
	{"a second release is told that the hold is lost", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.notReleased(e.store, c)
	}},
	{"a second release does not disturb the successor", nil, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.acquire(e.other, next)
		e.notReleased(e.store, c)
		e.isHeld()
		e.extend(e.other, next)
	}},
	{"a release of what was never seen is told that it is lost", nil, func(e *env) {
		e.notReleased(e.store, e.exclusive())
		e.isFree()
	}},
	{"a refused claim that did not wait has nothing to release", nil, func(e *env) {
		late := e.exclusive()
		e.acquire(e.store, e.exclusive())
		e.busy(e.other, late)
		e.notReleased(e.other, late)
		e.isHeld()
	}},
	{"a waiting claim is given up", []Feature{Watching, Places}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.notReleased(e.other, w)
		e.isHeld()
		e.release(e.store, c)
		e.isFree()
	}},
	{"a fair waiting claim is given up", []Feature{Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.notReleased(e.other, w)
		e.isHeld()
	}},
	{"a release that is to be remembered for no time is not", nil, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		brief := c
		brief.TTL = 0
		e.notReleased(e.store, brief)
		e.acquire(e.other, c)
		e.busy(e.other, w)
		brief = w
		brief.TTL = 0
		e.giveUp(e.other, brief)
		e.release(e.store, c)
		e.acquire(e.other, w)
	}},
	{"a claim that waited and was granted is given up by one release", nil, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.store, c)
		e.acquire(e.other, w)
		e.release(e.other, w)
		e.notReleased(e.other, w)
		e.isFree()
	}},
}

var tombstoneCases = []testCase{
	{"a claim that its release has overtaken is refused", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		e.refused(e.other, c, store.ErrLost)
		e.refused(e.store, c, store.ErrLost)
		e.isFree()
	}},
	{"a claim that its release has overtaken is refused while others hold", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.other, e.exclusive())
		e.notReleased(e.store, c)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"a tombstone stays while others come and go", []Feature{Tombstones}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.notReleased(e.store, c)
		e.acquire(e.other, next)
		e.extend(e.other, next)
		e.release(e.other, next)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"a tombstone stays through the end of a shorter hold", []Feature{Tombstones}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		next.TTL = e.units(1)
		e.notReleased(e.store, c)
		e.acquire(e.other, next)
		e.outlive(next.TTL)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"a tombstone is for one lease only", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		again := nested(c)
		e.acquire(e.store, again)
		e.release(e.store, again)
		e.isFree()
	}},
	{"a tombstone is for one key only", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		elsewhere := c
		elsewhere.Key += ":elsewhere"
		e.acquire(e.store, elsewhere)
	}},
	{"a tombstone does not stop the owner from entering again", []Feature{Tombstones, Reentry}, func(e *env) {
		c := e.exclusive()
		gone := nested(c)
		e.acquire(e.store, c)
		e.notReleased(e.store, gone)
		e.refused(e.store, gone, store.ErrLost)
		e.acquire(e.store, nested(c))
		e.extend(e.store, c)
	}},
	{"a tombstone stays when its lease is released for no time", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		brief := c
		brief.TTL = 0
		e.notReleased(e.store, brief)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"a tombstone ends after the TTL", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.notReleased(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.store, c)
	}},
	{"a waiting claim that was released is refused", []Feature{Tombstones, Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.refused(e.other, w, store.ErrLost)
		e.release(e.store, c)
		e.refused(e.other, w, store.ErrLost)
		e.isFree()
	}},
	{"a fair waiting claim that was released is refused", []Feature{Tombstones, Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.release(e.store, c)
		e.refused(e.other, w, store.ErrLost)
		e.acquire(e.store, e.fair())
	}},
}
