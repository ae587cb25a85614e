/*
 * The rule of core/internal/keystate for exclusive claims of one key, the clocks of the store
 * and of the processes, and the network between them. Each model includes this file.
 *
 * A printed line that begins with "do" is a step of the replay, with the answer of the store.
 */
#define TTL 2     /* duration of a hold and of a tombstone, in ticks of the store's clock */
/* Time for which a process relies on a hold after the call, in ticks of its clock. */
#define TRUST 1
#define LIFE 2    /* maximum delay of a request */
#define lower(x) x = (x > 0 -> x - 1 : 0)
#define taken (hold[0] || hold[1] || hold[2] || kept)
#define refused(l) (tomb[l] || kept && whose == l)
#define backed(l) (!trust[l] || hold[l] || kept && whose == l)
#define isLate(l, c) (late == c && lateOf == l)

mtype = { NONE, GRANTED, BUSY, LOST, OK, DONE, SAVED }               /* answers */
mtype = { ACQUIRE, EXTEND, RELEASE, SAVE, UNDO }                     /* calls */
mtype = { ALONE, BACKED, FENCED, CLEAN, HEARD, FINAL, COUNTED }      /* promises, and SAVED */
mtype = { TOGETHER, SINGLE, LATEST, KNOWN, REPLAYED }

/* The state of the store. Times are remaining times, and 0 means that there is no entry. */
byte hold[3], tomb[3];
byte kept, whose;          /* a hold without an owner, and its last owner */

/* The messages in flight: a call of each lease, and one late request. The late request
   arrives any number of times within its delay. A lost request never arrives. */
mtype call[CALLS] = NONE, reply[CALLS] = NONE;
mtype late = NONE;
byte lateOf, life;
/* The store has answered "not held" to the release of the late request's lease. */
bool settled;

/* The state of the processes. */
/* Trust in a hold; the trust after a confirmation of the call in flight. */
byte trust[3], pending[CALLS];
/* A token later than the reply's was granted; the newest token was trusted. */
bool old[CALLS], used;
bool lag;                  /* the store's clock is ahead of the others, by at most one tick */
hidden mtype ans;

inline must(promise, holds) { if :: holds :: else -> printf("broken %e\n", promise); assert(false) fi }
inline leave(l) { call[l] = NONE; reply[l] = NONE; old[l] = false; pending[l] = 0 }
inline send(l, c) {
	leave(l); call[l] = c; pending[l] = (c == ACQUIRE || c == EXTEND -> TRUST : 0);
	if
	:: late == NONE -> late = c; lateOf = (l) % 3; life = LIFE
	:: true
	fi
}
inline forget() { late = NONE; settled = false; lateOf = 0; life = 0; tomb[0] = 0; tomb[1] = 0; tomb[2] = 0 }

/* A new token is greater than all earlier ones. */
inline raise() {
	used = false;
	old[0] = (reply[0] == GRANTED); old[1] = (reply[1] == GRANTED); old[2] = (reply[2] == GRANTED)
}

inline acquire(l) {
	if
	:: hold[l] -> hold[l] = TTL; ans = GRANTED; printf("do acquire %d GRANTED again\n", l)
	:: !hold[l] && refused(l) -> ans = LOST; printf("do acquire %d LOST\n", l)
	:: !hold[l] && !refused(l) && taken -> ans = BUSY; printf("do acquire %d BUSY\n", l)
	:: !hold[l] && !refused(l) && !taken -> raise(); hold[l] = TTL; ans = GRANTED; printf("do acquire %d GRANTED new\n", l)
	fi
}

inline extend(l) {
	if
	:: hold[l] -> hold[l] = TTL; ans = OK
	:: else -> ans = LOST
	fi;
	printf("do extend %d %e\n", l, ans)
}

/* A tombstone that no claim can find is omitted. */
inline release(l) {
	if
	:: hold[l] -> hold[l] = 0; ans = OK
	:: else -> tomb[l] = (isLate(l, ACQUIRE) -> TTL : 0); ans = LOST
	fi;
	printf("do release %d %e\n", l, ans)
}

inline revoke(l) {
	kept = hold[l]; whose = l; hold[l] = 0;
	printf("do revoke %d\n", l)
}

active proctype clock() {
	do
	:: d_step { !lag -> printf("do tick\n"); lag = true;
		lower(hold[0]); lower(hold[1]); lower(hold[2]); lower(tomb[0]); lower(tomb[1]); lower(tomb[2]);
		lower(kept); whose = (kept -> whose : 0); lower(life);
		if :: !life -> forget() :: else fi;
		must(BACKED, backed(0) && backed(1) && backed(2)) }
	:: d_step { lag -> lag = false; lower(trust[0]); lower(trust[1]); lower(trust[2]);
		lower(pending[0]); lower(pending[1]); lower(pending[2]) }
	od
}

/* The step in which an answer makes a lease trust its hold. */
inline trusts(l) {
	must(ALONE, !trust[0] && !trust[1] && !trust[2]);
	must(FENCED, !old[l] && !used);
	used = true; trust[l] = pending[l]; leave(l)
}
inline confirms(l) { trust[l] = (trust[l] && pending[l] > trust[l] -> pending[l] : trust[l]); leave(l) }
