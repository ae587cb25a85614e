package storetest

import (
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

var fairCases = []testCase{
	{"waiters enter in order", []Feature{Fair}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		line := []store.Claim{e.fair(), e.fair(), e.fair(), e.fair()}
		for _, w := range line {
			e.busy(e.store, w)
		}
		e.release(e.store, c)
		for len(line) > 0 {
			for _, late := range line[1:] {
				e.busy(e.other, late)
			}
			e.acquire(e.other, line[0])
			for _, late := range line[1:] {
				e.busy(e.store, late)
			}
			e.release(e.store, line[0])
			line = line[1:]
		}
		e.isFree()
	}},
	{"repeated claim keeps its place", []Feature{Fair}, func(e *env) {
		c, first, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.busy(e.other, second)
		for range 3 {
			e.busy(e.store, first)
		}
		e.release(e.store, c)
		e.acquire(e.store, first)
		e.busy(e.other, second)
		e.release(e.store, first)
		e.acquire(e.other, second)
	}},
	{"no overtaking without Wait", []Feature{Fair}, func(e *env) {
		c, first, hasty := e.exclusive(), e.fair(), e.fair()
		hasty.Wait = false
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.release(e.store, c)
		e.busy(e.other, hasty)
		e.acquire(e.store, first)
	}},
	{"no place without Wait", []Feature{Fair}, func(e *env) {
		c, hasty := e.exclusive(), e.fair()
		hasty.Wait = false
		e.acquire(e.store, c)
		e.busy(e.other, hasty)
		e.release(e.store, c)
		e.acquire(e.store, e.fair())
	}},
	{"unfair claim overtakes a waiter", []Feature{Fair, Overtaking}, func(e *env) {
		c, first := e.exclusive(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.release(e.store, c)
		unfair := e.exclusive()
		e.acquire(e.other, unfair)
		e.busy(e.store, first)
		e.release(e.other, unfair)
		e.busy(e.other, e.fair())
		e.acquire(e.store, first)
	}},
	{"unfair waiter delays no fair claim", []Feature{Fair, Overtaking}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.store, e.waiting())
		e.release(e.store, c)
		e.acquire(e.other, e.fair())
	}},
	// The claim leaves no place that delays later claims.
	{"fair claim of a free key", []Feature{Fair}, func(e *env) {
		c := e.fair()
		e.acquire(e.store, c)
		e.extend(e.store, c)
		e.release(e.store, c)
		e.acquire(e.other, e.fair())
	}},
	{"owner enters past the waiters", []Feature{Fair, Reentry}, func(e *env) {
		c := e.fair()
		e.acquire(e.store, c)
		first := e.fair()
		e.busy(e.other, first)
		inner := nested(c)
		e.acquire(e.store, inner)
		e.release(e.store, inner)
		e.release(e.store, c)
		e.acquire(e.other, first)
	}},
	{"claim joins past the waiters", []Feature{Fair, Joining}, func(e *env) {
		c := e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, e.fair())
		e.acquire(e.other, joining(e.fair(), c))
	}},
	{"owner waits after its release", []Feature{Fair, Reentry}, func(e *env) {
		c, first := e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.other, first)
		e.release(e.store, c)
		e.busy(e.store, nested(c))
		e.acquire(e.other, first)
	}},
	{"waiting readers enter together", []Feature{Fair, Shared}, func(e *env) {
		w, next := e.exclusive(), e.fair()
		e.acquire(e.store, w)
		readers := []store.Claim{e.fairReader(), e.fairReader(), e.fairReader()}
		for _, r := range readers {
			e.busy(e.other, r)
		}
		e.busy(e.store, next)
		e.release(e.store, w)
		for _, r := range readers {
			e.acquire(e.other, r)
		}
		for _, r := range readers {
			e.busy(e.store, next)
			e.release(e.other, r)
		}
		e.acquire(e.store, next)
	}},
	{"reader behind a waiting writer", []Feature{Fair, Shared, Overtaking}, func(e *env) {
		r, w, late := e.reader(), e.fair(), e.fairReader()
		e.acquire(e.store, r)
		e.busy(e.other, w)
		e.busy(e.store, late)
		e.acquire(e.store, e.reader())
		e.busy(e.store, late)
	}},
	{"reader enters after the writer", []Feature{Fair, Shared}, func(e *env) {
		r, w, late := e.reader(), e.fair(), e.fairReader()
		e.acquire(e.store, r)
		e.busy(e.other, w)
		e.busy(e.store, late)
		e.release(e.store, r)
		e.busy(e.store, late)
		e.acquire(e.other, w)
		e.busy(e.store, late)
		e.release(e.other, w)
		e.acquire(e.store, late)
	}},
	{"heavy claim before light ones", []Feature{Fair, Permits}, func(e *env) {
		held, heavy, light := e.permits(3, 5), e.fair(), e.fair()
		heavy.Weight, heavy.Limit = 3, 5
		light.Weight, light.Limit = 1, 5
		e.acquire(e.store, held)
		e.busy(e.other, heavy)
		e.busy(e.store, light)
		e.release(e.store, held)
		e.acquire(e.other, heavy)
		e.acquire(e.store, light)
	}},
	{"waiters of another key", []Feature{Fair}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.busy(e.store, e.fair())
		elsewhere := e.fair()
		elsewhere.Key += ":elsewhere"
		e.acquire(e.other, elsewhere)
	}},
}

// waiterCases test the time for which a waiter keeps its place.
var waiterCases = []testCase{
	{"leaving waiter frees its place", []Feature{Fair}, func(e *env) {
		c, first, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.busy(e.other, second)
		e.release(e.store, first)
		e.release(e.store, c)
		e.acquire(e.other, second)
	}},
	{"second of three waiters leaves", []Feature{Fair}, func(e *env) {
		c, first, second, third := e.exclusive(), e.fair(), e.fair(), e.fair()
		e.acquire(e.store, c)
		for _, w := range []store.Claim{first, second, third} {
			e.busy(e.store, w)
		}
		e.release(e.store, second)
		e.release(e.store, c)
		e.busy(e.other, third)
		e.acquire(e.store, first)
		e.release(e.store, first)
		e.acquire(e.other, third)
	}},
	{"dead waiter forgotten after its TTL", []Feature{Fair}, func(e *env) {
		c, dead, second := e.exclusive(), e.fair(), e.fair()
		dead.TTL = e.units(1)
		e.acquire(e.store, c)
		e.busy(e.store, dead)
		e.busy(e.other, second)
		e.release(e.store, c)
		e.outlive(dead.TTL)
		e.acquire(e.other, second)
	}},
	{"dead waiter forgotten after WaiterLife", []Feature{Fair}, func(e *env) {
		c, dead, second := e.exclusive(), e.fair(), e.fair()
		for _, w := range []*store.Claim{&c, &dead, &second} {
			w.TTL = store.WaiterLife + e.long
		}
		e.acquire(e.store, c)
		passed := e.stopwatch()
		e.busy(e.store, dead)
		e.release(e.store, c)
		for range 4 {
			// The second waiter is alive and asks from time to time.
			if _, err := e.other.Acquire(e.Context(), second); err == nil && passed() >= store.WaiterLife {
				return // the machine was busy for so long
			} else if !errors.Is(err, store.ErrBusy) {
				e.Fatalf("acquire: got %v, want a *BusyError", err)
			}
			e.sleep(store.WaiterLife / 4)
		}
		e.sleep(e.h.Unit)
		e.acquire(e.other, second)
	}},
	{"repeated claim renews its place", []Feature{Fair}, func(e *env) {
		life := store.WaiterLife // long enough for a busy machine
		c, first := e.exclusive(), e.fair()
		c.TTL, first.TTL = 2*life, life
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.sleep(life / 2)
		e.busy(e.store, first)
		e.sleep(life * 6 / 10)
		second := e.fair()
		e.release(e.store, c)
		e.busy(e.other, second)
		e.acquire(e.store, first)
	}},
	{"forgotten waiter comes last", []Feature{Fair}, func(e *env) {
		c, late, second := e.exclusive(), e.fair(), e.fair()
		late.TTL = e.units(1)
		e.acquire(e.store, c)
		e.busy(e.store, late)
		e.busy(e.other, second)
		e.outlive(late.TTL)
		late.TTL = e.long
		e.busy(e.store, late)
		e.release(e.store, c)
		e.busy(e.store, late)
		e.acquire(e.other, second)
	}},
	{"grant outlives its place", []Feature{Fair}, func(e *env) {
		c, w := e.exclusive(), e.fair()
		w.TTL = e.units(5)
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.release(e.store, c)
		w.TTL = e.long
		e.acquire(e.other, w)
		e.sleep(e.units(6))
		e.isHeld()
		e.extend(e.other, w)
	}},
	// The owner of a waiter acquires the key meanwhile, so the waiter may enter too.
	{"waiter whose owner holds the key", []Feature{Fair, Reentry, Overtaking}, func(e *env) {
		c, first, second := e.exclusive(), e.fair(), e.fair()
		e.acquire(e.store, c)
		e.busy(e.store, first)
		e.busy(e.other, second)
		e.release(e.store, c)
		again := nested(second)
		again.Fair, again.Wait = false, false
		e.acquire(e.other, again)
		e.acquire(e.other, second)
		e.busy(e.store, first)
	}},
}

func (e *env) fairReader() store.Claim {
	c := e.fair()
	c.Weight = 1
	return c
}
