package models_test

// mutant is a small mistake in a model, which breaks a promise.
type mutant struct {
	model, name, from, to string
	promise               string
	atStore               bool // the answers of a real store differ from the mutant's
}

var mutants = []mutant{
	{
		"store", "release without compare",
		":: hold[l] -> hold[l] = 0; ans = OK", ":: hold[0] || hold[1] || hold[2] -> hold[0] = 0; hold[1] = 0; hold[2] = 0; ans = OK", "BACKED", true,
	},
	{"store", "release without a tombstone", "(isLate(l, ACQUIRE) -> TTL : 0); ans", "0; ans", "CLEAN", true},
	{"store", "trust outlasts the hold", "#define TRUST 1", "#define TRUST 2", "BACKED", false},
	{"store", "extension creates a hold", "	:: else -> ans = LOST", "	:: else -> hold[l] = TTL; ans = OK", "CLEAN", true},
	{
		"store", "grant repeats the token",
		"raise(); hold[l] = TTL; ans = GRANTED; printf(\"do acquire %d GRANTED new", "hold[l] = TTL; ans = GRANTED; printf(\"do acquire %d GRANTED again", "FENCED", true,
	},
	{
		"store", "clean-up ends after one release",
		"reply[l] == OK && unsure -> goto giveBack", "reply[l] == OK && unsure -> settled = settled || late != NONE && lateOf == l; leave(l)", "CLEAN", false,
	},
	{"store", "claim admitted beside a holder", "#define taken (hold[0] || hold[1] || hold[2] || kept)", "#define taken kept", "FENCED", true},
	{"passing", "passed on with its token", "tokens++; must", "must", "FENCED", false},
	{"passing", "passed on beyond its tokens", "trust[0] && tokens < STEP", "trust[0]", "FENCED", false},
	// With this mistake, a release that passes the hold on does not ask the store.
	{"passing", "release confirms nothing", "was = hold[0] > 0; send(0, EXTEND)", "must(HEARD, hold[0]); waits = false", "HEARD", false},
	{
		"passing", "release answered by earlier call",
		"was = hold[0] > 0; send(0, EXTEND)", "was = hold[0] > 0; if :: call[0] == NONE -> send(0, EXTEND) :: else fi", "HEARD", false,
	},
	{
		"passing", "guessed release is an answer",
		"reply[3] == LOST && (!waits || lost) -> break", "reply[3] == LOST && (!waits || lost) -> must(HEARD, !waits || was || !unsure); break", "HEARD", false,
	},
	{"passing", "revoked key is free", "kept = hold[l]; whose = l; hold[l] = 0", "hold[l] = 0", "BACKED", false},
	{"once", "overtaken run saves its answer", "!overruled(l) && (hold[l]", "!overruled(l) && (true || hold[l]", "FINAL", true},
	{"once", "answered call runs again", "#define answered done", "#define answered false", "COUNTED", true},
	{"once", "dead run is not noticed", "seen[l] == 1", "seen[l] > 0", "COUNTED", false},
	{"once", "undo of another run", ":: beginner == l + 1 && (fresh || has0)", ":: beginner && (fresh || has0)", "COUNTED", true},
	{"commit", "overtaken run commits", ":: d_step { !tx && beginner == l + 1 ->", ":: d_step { !tx && saver != l + 1 ->", "LATEST", true},
	{"commit", "row is not locked", "#define served(l, c) (!tx ||", "#define served(l, c) (true ||", "LATEST", true},
	{"commit", "run commits twice", ":: d_step { !tx && beginner == l + 1 ->", ":: d_step { !tx && (beginner == l + 1 || saver == l + 1) ->", "SINGLE", true},
	{"commit", "answer saved outside the transaction", "tx = l + 1; printf", "tx = l + 1; put(l, 2); printf", "TOGETHER", false},
	{"commit", "failure saved after the answer", "#define overruled(l) (author == l + 1 &&", "#define overruled(l) (false &&", "KNOWN", true},
	{
		"commit", "lost reply is a rollback",
		"	:: atomic { true -> goto saves }", "	:: atomic { true -> must(KNOWN, effect != l + 1); goto over }", "KNOWN", false,
	},
	{"commit", "committed call runs again", "#define answered done", "#define answered (author == l + 1)", "REPLAYED", true},
}

// rare lists steps of commit.pml that random runs rarely reach.
var rare = []string{
	`printf("do commit %d LOST\n", l)`, `printf("do commit %d SAVED\n", l)`, `printf("do end %d COMMITTED\n", tx - 1)`,
	`printf("do save %d SAVED 1\n", l)`, `printf("do begin %d DONE %d\n", l, author)`,
}
