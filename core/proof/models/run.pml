/*
 * The record of a run (core/once), and the calls of the lease that has begun the run. once.pml
 * and commit.pml include this file.
 */
#define CALLS 3
#include "key.pml"
#define answered done
#define MANY 3    /* stands for three or more runs */

bool next, done, has, has0, fresh, fresh0;
byte unsaid, unsaid0;      /* runs that have begun since the last one that reported its end */
/* Leases, from 1 on: of the last run, of the record, of the answer. */
byte beginner, beginner0, saver, saver0, author;
byte ending[3], seen[3];   /* end of a run: 1 failed, 2 done; the value of unsaid in a grant */
/* The lease, from 1 on, of the last run that has worked and not reported a failure. */
byte open;
/* The lease, from 1 on, whose transaction has locked the row of the key. */
byte tx;

/* While a transaction has locked the row, only calls that change nothing are answered. */
#define served(l, c) (!tx || c == ACQUIRE && !hold[l] && (refused(l) || taken))

/* The lease has committed an answer, and now saves a failure. */
#define overruled(l) (author == l + 1 && ending[l] == 1)

inline begin(l) {
	if
	:: beginner == l + 1 || hold[l] && has
	:: else ->
		has0 = has; unsaid0 = unsaid; beginner0 = beginner; saver0 = saver; fresh0 = fresh;
		fresh = !has; has = true; beginner = l + 1; saver = 0;
		unsaid = (unsaid < MANY -> unsaid + 1 : MANY)
	fi
}
inline put(l, e) {
	must(FINAL, !done || author == l + 1);
	done = (e == 2); author = (done -> l + 1 : 0); open = (!done && open == l + 1 -> 0 : open); hold[l] = 0;
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
	:: c == SAVE && overruled(l) -> ans = SAVED; printf("do save %d SAVED 1\n", l)
	:: c == SAVE && !overruled(l) && (hold[l] || saver == l + 1 || beginner == l + 1) ->
		if :: hold[l] || saver != l + 1 -> put(l, ending[l]) :: else fi;
		ans = OK; printf("do save %d OK %d\n", l, ending[l])
	:: c == SAVE && !(hold[l] || saver == l + 1 || beginner == l + 1) ->
		tomb[l] = (isLate(l, ACQUIRE) -> TTL : 0); ans = LOST; printf("do save %d LOST %d\n", l, ending[l])
	:: c == UNDO -> back(l); printf("do undo %d\n", l); release(l)
	fi
}

inline answer(l) { execute(l, call[l]); reply[l] = ans; seen[l] = (ans == GRANTED -> unsaid : 0) }

active proctype network() {
	do
	:: d_step { call[0] != NONE && reply[0] == NONE && served(0, call[0]) -> answer(0) }
	:: d_step { call[1] != NONE && reply[1] == NONE && served(1, call[1]) -> answer(1) }
	:: d_step { call[2] != NONE && reply[2] == NONE && served(2, call[2]) -> answer(2) }
	:: d_step { late != NONE && served(lateOf, late) -> execute(lateOf, late) }
	:: d_step { late != NONE -> forget() }
	od
}
