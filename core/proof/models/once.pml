/*
 * Runs of one call with a stored answer (core/once, under AtMostOnce): a run begins and works,
 * and then saves its result, is withdrawn or crashes. Later callers receive the stored answer.
 */
#include "run.pml"

proctype lease(byte l) {
	l < 2 || next;
	atomic { send(l, ACQUIRE) }
	if
	:: atomic { reply[l] == GRANTED && pending[l] && seen[l] == 1 -> seen[l] = 0; trusts(l) }
	/* A run has died. */
	:: atomic { reply[l] == GRANTED && pending[l] && seen[l] > 1 -> seen[l] = 0; ending[l] = 2; goto saves }
	:: atomic { reply[l] == DONE || reply[l] == BUSY || reply[l] == LOST -> goto over }
	:: atomic { reply[l] == NONE || reply[l] == GRANTED && !pending[l] -> goto withdraws }
	fi;
	if
	/* Only this lease can fail, to limit the number of states. */
	:: atomic { trust[l] && l == 0 -> must(COUNTED, !open); open = l + 1; ending[l] = 1 }
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
	/* Another run had begun; a late copy may save after the undo of that run. */
	:: atomic { reply[l] == LOST -> goto over }
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
