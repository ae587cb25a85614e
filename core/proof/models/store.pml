/*
 * Claim, tombstone, expiry and unknown outcome: leases acquire, extend, release and clean up
 * like the engine (attempt.go, hold.go, cleanup.go).
 */
#define CALLS 3
#include "key.pml"

bool next;        /* lease 0 of A is about to end: lease 2, the next caller of A, sends its claim */

inline execute(l, c) {
	if
	:: c == ACQUIRE -> acquire(l)
	:: c == EXTEND -> extend(l)
	:: c == RELEASE -> release(l)
	fi;
	must(CLEAN, !(settled && hold[lateOf]))
}

active proctype network() {
	do
	:: d_step { call[0] != NONE && reply[0] == NONE -> execute(0, call[0]); reply[0] = ans }
	:: d_step { call[1] != NONE && reply[1] == NONE -> execute(1, call[1]); reply[1] = ans }
	:: d_step { call[2] != NONE && reply[2] == NONE -> execute(2, call[2]); reply[2] = ans }
	:: d_step { late != NONE -> execute(lateOf, late) }
	:: d_step { late != NONE -> forget() }
	od
}

proctype lease(byte l) {
	/* Only one lease repeats its claim, to limit the number of states. */
	bool again = l > 0, unsure;
	l < 2 || next;   /* the callers of one process send their claims one after the other */
ask:
	atomic { send(l, ACQUIRE) }
	if
	:: atomic { reply[l] == GRANTED && pending[l] -> trusts(l) }
	:: atomic { reply[l] == GRANTED && !pending[l] -> leave(l); goto giveBack }
	:: atomic { (reply[l] == BUSY || reply[l] == LOST) && !again -> again = true; goto ask }
	:: atomic { (reply[l] == BUSY || reply[l] == LOST) && !unsure -> leave(l); goto over }
	:: atomic { (reply[l] == BUSY || reply[l] == LOST) && unsure -> goto giveBack }
	:: atomic { !again -> again = true; unsure = true; goto ask }
	:: atomic { true -> unsure = true; goto giveBack }
	fi;
	do
	:: atomic { trust[l] && call[l] == NONE -> send(l, EXTEND) }
	:: atomic { reply[l] == OK -> confirms(l) }
	:: atomic { reply[l] == LOST -> trust[l] = 0; goto giveBack }
	:: atomic { call[l] == EXTEND -> leave(l) }
	:: atomic { true -> trust[l] = 0; goto giveBack }
	od;
giveBack:
	atomic { send(l, RELEASE); next = next || l == 0 }
	if
	:: atomic { reply[l] == OK && !unsure -> leave(l) }
	:: atomic { reply[l] == OK && unsure -> goto giveBack }
	:: atomic { reply[l] == LOST -> settled = settled || late != NONE && lateOf == l; leave(l) }
	:: atomic { true -> unsure = true; goto giveBack }
	fi;
over:
	atomic { next = next || l == 0; again = true; unsure = false }
}

init { atomic { run lease(0); run lease(1); run lease(2) } }
