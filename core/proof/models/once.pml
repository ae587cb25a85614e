/*
 * Runs of one call with a stored answer (core/once, under AtMostOnce): a run begins and works,
 * and then saves its result, is withdrawn or crashes. Later callers receive the stored answer.
 */
#define CALLS 3
#include "key.pml"
#define answered done
#define MANY 3    /* stands for three or more runs */

bool next, done, has, has0, fresh, fresh0;
byte unsaid, unsaid0;      /* runs that have begun since the last one that reported its end */
byte beginner, beginner0, saver, saver0, author; /* leases, from 1 on: of the last run, of the record, of the answer */
byte ending[3], seen[3];   /* end of a run: 1 failed, 2 done; the value of unsaid in a grant */
byte open;                 /* the lease, from 1 on, that has worked and not reported a failure */

inline begin(l) {
	if
	:: beginner == l + 1 || hold[l] && has
	:: else ->
		has0 = has; unsaid0 = unsaid; beginner0 = beginner; saver0 = saver; fresh0 = fresh;
		fresh = !has; has = true; beginner = l + 1; saver = 0;
		unsaid = (unsaid < MANY -> unsaid + 1 : MANY)
	fi
}
inline put(l) {
	must(FINAL, !done || author == l + 1);
	done = (ending[l] == 2); author = (done -> l + 1 : 0); open = (!done && open == l + 1 -> 0 : open);
	has = true; unsaid = 0; saver = l + 1; beginner = 0;
	fresh = false; has0 = false; unsaid0 = 0; beginner0 = 0; saver0 = 0; fresh0 = false
}
inline back(l) {
	if
	:: beginner == l + 1 && (fresh || has0) ->
		has = (fresh -> false : has0); unsaid = (has -> unsaid0 : 0);
		beginner = (has -> beginner0 : 0); saver = (has -> saver0 : 0); fresh = (has -> fresh0 : false);
		has0 = false; unsaid0 = 0; beginner0 = 0; saver0 = 0; fresh0 = false
	:: beginner == l + 1 && !fresh && !has0 -> unsaid = unsaid - 1; beginner = 0
	:: else
	fi
}

inline execute(l, c) {
	if
	:: c == ACQUIRE && answered -> ans = DONE; printf("do begin %d DONE %d\n", l, author)
	:: c == ACQUIRE && !answered ->
		if
		:: hold[l] || !refused(l) && !taken -> begin(l); printf("do begun %d %d\n", l, unsaid)
		:: else
		fi;
		acquire(l)
	:: c == SAVE && (hold[l] || saver == l + 1 || beginner == l + 1) ->
		if :: hold[l] || saver != l + 1 -> put(l) :: else fi;
		hold[l] = 0; ans = OK; printf("do save %d OK %d\n", l, ending[l])
	:: c == SAVE && !(hold[l] || saver == l + 1 || beginner == l + 1) ->
		tomb[l] = (isLate(l, ACQUIRE) -> TTL : 0); ans = LOST; printf("do save %d LOST %d\n", l, ending[l])
	:: c == UNDO -> back(l); printf("do undo %d\n", l); release(l)
	fi
}

inline answer(l) { execute(l, call[l]); reply[l] = ans; seen[l] = (ans == GRANTED -> unsaid : 0) }

active proctype network() {
	do
	:: d_step { call[0] != NONE && reply[0] == NONE -> answer(0) }
	:: d_step { call[1] != NONE && reply[1] == NONE -> answer(1) }
	:: d_step { call[2] != NONE && reply[2] == NONE -> answer(2) }
	:: d_step { late != NONE -> execute(lateOf, late) }
	:: d_step { late != NONE -> forget() }
	od
}

proctype lease(byte l) {
	l < 2 || next;
	atomic { send(l, ACQUIRE) }
	if
	:: atomic { reply[l] == GRANTED && pending[l] && seen[l] == 1 -> seen[l] = 0; trusts(l) }
	:: atomic { reply[l] == GRANTED && pending[l] && seen[l] > 1 -> seen[l] = 0; ending[l] = 2; goto saves } /* a run has died */
	:: atomic { reply[l] == DONE || reply[l] == BUSY || reply[l] == LOST -> goto over }
	:: atomic { reply[l] == NONE || reply[l] == GRANTED && !pending[l] -> goto withdraws }
	fi;
	if
	:: atomic { trust[l] && l == 0 -> must(COUNTED, !open); open = l + 1; ending[l] = 1 } /* only this lease can fail, to limit the number of states */
	:: atomic { trust[l] -> must(COUNTED, !open); open = l + 1; ending[l] = 2 }
	:: atomic { true -> trust[l] = 0; goto withdraws }
	fi;
	if
	:: atomic { true -> trust[l] = 0 }
	:: atomic { true -> trust[l] = 0; goto over } /* the process crashes */
	fi;
saves:
	atomic { send(l, SAVE) }
	if
	:: atomic { reply[l] == OK -> must(SAVED, ending[l] == 1 || done && author == l + 1); goto over }
	:: atomic { reply[l] == LOST -> goto over } /* another run had begun; a late copy may save after the undo of that run */
	:: atomic { true -> goto saves }
	fi;
withdraws:
	atomic { send(l, UNDO) }
	if
	:: atomic { reply[l] == LOST -> skip }
	:: atomic { true -> goto withdraws }
	fi;
over:
	atomic { leave(l); seen[l] = 0; next = next || l == 0 }
}

init { atomic { run lease(0); run lease(1); run lease(2) } }
