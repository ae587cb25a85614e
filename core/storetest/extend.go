package storetest

import "github.com/lockkit/lockkit/core/store"

var extendCases = []testCase{
	{"hold lasts from its last extension", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(10)
		e.acquire(e.store, c)
		c.TTL = e.long
		e.extend(e.store, c)
		e.sleep(e.units(11))
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"hold lasts while it is extended", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(14)
		e.acquire(e.store, c)
		for range 4 {
			e.sleep(e.units(4))
			e.extend(e.store, c)
		}
		e.isHeld()
	}},
	{"extension never creates a hold", nil, func(e *env) {
		c := e.exclusive()
		e.notExtended(e.store, c)
		e.isFree()
		e.notReleased(e.store, c)
	}},
	{"extension of a released hold", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.release(e.store, c)
		e.notExtended(e.store, c)
		e.isFree()
	}},
	{"extension of a waiting claim", nil, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		e.notExtended(e.other, w)
		e.release(e.store, c)
		e.notExtended(e.other, w)
		if e.can(Overtaking) {
			e.isFree()
		}
	}},
	{"extension never shortens", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		shorter := c
		shorter.TTL = e.units(1)
		e.extend(e.store, shorter)
		e.outlive(shorter.TTL)
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"stranger cannot extend", nil, func(e *env) {
		c := e.exclusive()
		c.TTL = e.units(5)
		e.acquire(e.store, c)
		e.notExtended(e.other, e.exclusive())
		if e.can(Reentry) {
			e.notExtended(e.other, nested(c))
		}
		e.outlive(c.TTL)
		e.notExtended(e.store, c)
		e.isFree()
	}},
	{"extension does not change tokens", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		g := e.acquire(e.store, c)
		e.extend(e.store, c)
		e.sameToken(e.store, c, g.Token)
	}},
	{"extension of nothing answers nothing", nil, func(e *env) {
		if answers := e.store.Extend(e.Context(), nil); len(answers) != 0 {
			e.Errorf("got %d answers, want none", len(answers))
		}
	}},
	{"batch answers in order", nil, func(e *env) {
		batch, held := e.batch(7)
		e.checkBatch(batch, held)
	}},
	{"batch of six hundred claims", nil, func(e *env) {
		batch, held := e.batch(600)
		e.checkBatch(batch, held)
	}},
	{"batch extends each hold", nil, func(e *env) {
		var batch []store.Claim
		for range 3 {
			c := e.exclusive()
			c.Key += c.Lease
			c.TTL = e.units(10)
			e.acquire(e.store, c)
			c.TTL = e.long
			batch = append(batch, c)
		}
		for i, x := range e.store.Extend(e.Context(), batch) {
			if x.Err != nil {
				e.Fatalf("answer %d: got %v, want an extension", i, x.Err)
			}
		}
		e.sleep(e.units(11))
		for _, c := range batch {
			e.extend(e.store, c)
		}
	}},
	{"batch with holds of one key", []Feature{Shared}, func(e *env) {
		a, b, unknown := e.reader(), e.reader(), e.reader()
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.checkBatch([]store.Claim{a, unknown, b, a}, []bool{true, false, true, true})
	}},
}

// batch returns n claims of n keys. The first claim, the last claim and some other
// claims are held. held[i] reports whether batch[i] is held.
func (e *env) batch(n int) (batch []store.Claim, held []bool) {
	e.Helper()
	every := max(3, n/20)
	for i := range n {
		c := e.exclusive()
		c.Key += c.Lease
		held = append(held, i == 0 || i == n-1 || i%every == 2)
		if held[i] {
			e.acquire(e.store, c)
		}
		batch = append(batch, c)
	}
	return batch, held
}

// checkBatch extends batch and compares the answers with held. Like a Locker, it
// extends again the claims that got no answer within the time of a call. Each call must
// answer for at least one claim.
func (e *env) checkBatch(batch []store.Claim, held []bool) {
	e.Helper()
	for len(batch) > 0 {
		answers := e.store.Extend(e.Context(), batch)
		if len(answers) != len(batch) {
			e.Fatalf("got %d answers for %d claims", len(answers), len(batch))
		}
		var again []store.Claim
		var heldAgain []bool
		for i, x := range answers {
			switch lost := isLost(x.Err); {
			case x.Err != nil && !lost:
				again, heldAgain = append(again, batch[i]), append(heldAgain, held[i])
			case lost == held[i]:
				e.Errorf("answer %d: got %v, and the claim is held: %v", i, x.Err, held[i])
			}
		}
		if len(again) == len(batch) {
			e.Fatalf("none of %d claims was answered; answer 0: %v", len(batch), answers[0].Err)
		}
		batch, held = again, heldAgain
	}
}
