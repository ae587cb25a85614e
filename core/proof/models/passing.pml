/*
 * A hold is passed on, and revoked: process A passes the hold of its claim 0 from one lease to
 * the next (passing.go). Process B sends claim 1. The release of a lease that has passed the
 * hold on sends a request to the store. The release of the hold itself is call 3.
 */
#define CALLS 4
#include "key.pml"
#define STEP 2    /* number of tokens of a grant */

inline execute(l, c) {
	if
	:: c == ACQUIRE -> acquire(l)
	:: c == EXTEND -> extend(l)
	:: c == RELEASE -> release(l)
	fi
}

active proctype network() {
	do
	:: d_step { call[0] != NONE && reply[0] == NONE -> execute(0, call[0]); reply[0] = ans }
	:: d_step { call[1] != NONE && reply[1] == NONE -> execute(1, call[1]); reply[1] = ans }
	:: d_step { call[3] != NONE && reply[3] == NONE -> execute(0, call[3]); reply[3] = ans }
	:: d_step { late != NONE -> execute(lateOf, late) }
	:: d_step { late != NONE -> forget() }
	od
}

active proctype operator() {
	d_step { hold[0] -> revoke(0) }
}

/* Process A with claim 0. waits: a release waits for an answer; was: the store had the hold
   when that release began; lost: the store does not have the hold any more; unsure: the
   acquire or a release of the hold was not answered. */
active proctype passer() {
	byte tokens = 1, had = 1;
	bool waits, was, lost, unsure;
	atomic { send(0, ACQUIRE) }
	if
	:: atomic { reply[0] == GRANTED && pending[0] -> trusts(0) }
	:: atomic { reply[0] == BUSY || reply[0] == LOST -> goto over }
	:: atomic { true -> unsure = true; leave(0); goto giveBack }
	fi;
	do
	:: atomic { trust[0] && call[0] == NONE -> send(0, EXTEND) }
	:: atomic { trust[0] && tokens < STEP -> tokens++; must(FENCED, tokens > had && tokens <= STEP); had = tokens;
		waits = true; was = hold[0] > 0; send(0, EXTEND) }
	:: atomic { reply[0] == OK -> must(HEARD, !waits || was); confirms(0); waits = false }
	:: atomic { reply[0] == LOST -> trust[0] = 0; leave(0); waits = false; break }
	:: atomic { call[0] == EXTEND -> leave(0); tokens = (waits -> STEP : tokens); waits = false }
	:: atomic { true -> trust[0] = 0; break }
	od;
giveBack:
	atomic { send(3, RELEASE) }
	do
	:: atomic { waits && reply[0] == OK -> must(HEARD, was); waits = false; leave(0) }
	:: atomic { waits && reply[0] == LOST -> lost = true; leave(0) }
	:: atomic { waits && call[0] == EXTEND -> waits = false; leave(0) }
	:: atomic { reply[3] == OK && (!waits || lost) -> must(HEARD, !waits || was); waits = false;
		if :: unsure -> goto giveBack :: else -> break fi }
	/* The callers receive "lost", which is a guess after an unanswered release. */
	:: atomic { reply[3] == LOST && (!waits || lost) -> break }
	:: atomic { true -> unsure = true; goto giveBack }
	od;
over:
	atomic { leave(0); leave(3); tokens = 1; had = 1; waits = false; was = false; lost = false; unsure = false }
}

/* Process B. */
active proctype other() {
ask:
	atomic { send(1, ACQUIRE) }
	if
	:: atomic { reply[1] == GRANTED && pending[1] -> trusts(1) }
	:: atomic { reply[1] == BUSY -> goto ask }
	:: atomic { true -> goto giveBack }
	fi;
	atomic { true -> trust[1] = 0 }
giveBack:
	atomic { send(1, RELEASE) }
	if
	:: atomic { reply[1] == LOST -> leave(1) }
	:: atomic { true -> goto giveBack }
	fi
}
