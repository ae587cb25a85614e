package core

// The ranks of the engine's mutexes: a mutex is taken before those of a greater rank.
// No mutex is taken under the last two. None is held while the store, an observer or a
// function of the caller is called.
type (
	waitersRank  struct{}
	leaseRank    struct{}
	holdRank     struct{}
	watchdogRank struct{}
	rosterRank   struct{}
	cleanupRank  struct{}
)

func (waitersRank) Rank() int  { return 1 }
func (leaseRank) Rank() int    { return 2 }
func (holdRank) Rank() int     { return 3 }
func (watchdogRank) Rank() int { return 4 }
func (rosterRank) Rank() int   { return 5 }
func (cleanupRank) Rank() int  { return 5 }
