/*
 * Runs that commit their answer with once.Commit, in the transaction of their effect. A failed
 * run is followed by another one, without AtMostOnce. Each run that has worked reports a failure
 * at its end (once/run.go). The store refuses the failure if the answer was committed.
 */
#include "run.pml"

bool asked;       /* the database has the COMMIT of the transaction */
byte effect;      /* the lease, from 1 on, of the committed effect */

/* The database commits a transaction, even if its client has left, or rolls it back at any time. */
active proctype database() {
	do
	:: d_step { tx && asked -> printf("do end %d COMMITTED\n", tx - 1);
		must(LATEST, open == tx); must(SINGLE, !effect);
		put(tx - 1, 2); effect = tx; tx = 0; asked = false }
	:: d_step { tx -> printf("do end %d ROLLEDBACK\n", tx - 1); tx = 0; asked = false }
	od
}

/* An effect and its answer are committed together. */
active proctype judge() { d_step { effect != author -> must(TOGETHER, false) } }

proctype lease(byte l) {
	l < 2 || next;
	atomic { send(l, ACQUIRE) }
	if
	:: atomic { reply[l] == GRANTED && pending[l] -> seen[l] = 0; trusts(l) }
	:: atomic { reply[l] == DONE || reply[l] == BUSY || reply[l] == LOST -> goto over }
	:: atomic { reply[l] == NONE || reply[l] == GRANTED && !pending[l] -> goto withdraws }
	fi;
	if
	:: atomic { trust[l] -> must(REPLAYED, !effect); open = l + 1 }
	:: atomic { true -> trust[l] = 0; goto withdraws }
	fi;
works: /* any number of transactions: Commit, and then COMMIT, whose reply may be lost */
	do
	:: d_step { tx == l + 1 && !asked -> asked = true }
	:: d_step { !tx && saver == l + 1 -> printf("do commit %d SAVED\n", l) }
	:: d_step { !tx && saver != l + 1 && beginner != l + 1 -> printf("do commit %d LOST\n", l) }
	:: d_step { !tx && beginner == l + 1 -> trust[l] = 0; tx = l + 1; printf("do commit %d OK\n", l) }
	:: atomic { true -> trust[l] = 0; break }
	:: atomic { true -> trust[l] = 0; goto over } /* the process crashes */
	od;
saves:
	atomic { ending[l] = 1; send(l, SAVE) }
	if
	:: atomic { reply[l] == SAVED -> must(KNOWN, effect == l + 1); goto over }
	:: atomic { reply[l] == OK || reply[l] == LOST -> must(KNOWN, effect != l + 1 && tx != l + 1); goto over }
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
