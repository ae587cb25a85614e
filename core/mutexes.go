package core

// The ranks of the engine's mutexes. A goroutine that holds a mutex takes only mutexes
// of a greater rank. So it takes no further mutex while it holds the roster's or the
// cleanup's mutex. No mutex is held during a call of the store, of an observer or of a
// function of the caller.
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
