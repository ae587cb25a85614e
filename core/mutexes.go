package core

// The ranks of the engine's mutexes: one is taken before those of a greater rank.
// Nothing is taken under the last two, and none is held while the store, an observer
// or a function of the caller is called.
type (
	waitersRank  [1]struct{}
	leaseRank    [2]struct{}
	holdRank     [3]struct{}
	watchdogRank [4]struct{}
	lockerRank   [5]struct{}
	cleanupRank  [5]struct{}
)
