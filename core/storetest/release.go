package storetest

import "github.com/lockkit/lockkit/core/store"

var releaseCases = []testCase{
	{"stranger cannot release", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.notReleased(e.other, e.exclusive())
		if e.can(Reentry) {
			e.notReleased(e.other, nested(c))
		}
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"release of one hold of several", []Feature{Shared}, func(e *env) {
		a, b := e.reader(), e.reader()
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.release(e.store, a)
		e.notExtended(e.store, a)
		e.extend(e.store, b)
		e.isHeld()
	}},
	{"second release gets ErrLost", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.notReleased(e.store, c)
	}},
	{"second release beside a successor", nil, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.acquire(e.other, next)
		e.notReleased(e.store, c)
		e.isHeld()
		e.extend(e.other, next)
	}},
	{"release of an unknown lease", nil, func(e *env) {
		e.notReleased(e.store, e.exclusive())
		e.isFree()
	}},
	{"release of a refused claim", nil, func(e *env) {
		late := e.exclusive()
		e.acquire(e.store, e.exclusive())
		e.busy(e.other, late)
		e.notReleased(e.other, late)
		e.isHeld()
	}},
	{"release of a waiting claim", []Feature{Watching, Places}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.notReleased(e.other, w)
		e.isHeld()
		e.release(e.store, c)
		e.isFree()
	}},
	{"release of a fair waiter", []Feature{Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.notReleased(e.other, w)
		e.isHeld()
	}},
	// A release with a TTL of zero leaves no tombstone.
	{"release with a TTL of zero", nil, func(e *env) {
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
	{"release of an admitted waiter", nil, func(e *env) {
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
	{"claim overtaken by its release", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		e.refused(e.other, c, store.ErrLost)
		e.refused(e.store, c, store.ErrLost)
		e.isFree()
	}},
	{"overtaken claim of a held key", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.other, e.exclusive())
		e.notReleased(e.store, c)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"tombstone outlives other holds", []Feature{Tombstones}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		e.notReleased(e.store, c)
		e.acquire(e.other, next)
		e.extend(e.other, next)
		e.release(e.other, next)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"tombstone outlives an expired hold", []Feature{Tombstones}, func(e *env) {
		c, next := e.exclusive(), e.exclusive()
		next.TTL = e.units(1)
		e.notReleased(e.store, c)
		e.acquire(e.other, next)
		e.outlive(next.TTL)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"tombstone of another lease", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		again := nested(c)
		e.acquire(e.store, again)
		e.release(e.store, again)
		e.isFree()
	}},
	{"tombstone of another key", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		elsewhere := c
		elsewhere.Key += ":elsewhere"
		e.acquire(e.store, elsewhere)
	}},
	{"owner enters beside a tombstone", []Feature{Tombstones, Reentry}, func(e *env) {
		c := e.exclusive()
		gone := nested(c)
		e.acquire(e.store, c)
		e.notReleased(e.store, gone)
		e.refused(e.store, gone, store.ErrLost)
		e.acquire(e.store, nested(c))
		e.extend(e.store, c)
	}},
	// A second release with a TTL of zero does not remove the tombstone of the first.
	{"tombstone outlives a TTL of zero", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		e.notReleased(e.store, c)
		brief := c
		brief.TTL = 0
		e.notReleased(e.store, brief)
		e.refused(e.store, c, store.ErrLost)
	}},
	{"tombstone expires after its TTL", []Feature{Tombstones}, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(1)
		e.notReleased(e.store, c)
		e.outlive(c.TTL)
		e.acquire(e.store, c)
	}},
	{"released waiting claim is refused", []Feature{Tombstones, Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.refused(e.other, w, store.ErrLost)
		e.release(e.store, c)
		e.refused(e.other, w, store.ErrLost)
		e.isFree()
	}},
	{"released fair waiter is refused", []Feature{Tombstones, Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.other, w)
		e.release(e.store, c)
		e.refused(e.other, w, store.ErrLost)
		e.acquire(e.store, e.fair())
	}},
}
