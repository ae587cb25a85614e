package core

import (
	"context"
	"time"
)

// Watcher is a Store that can wake those who wait.
type Watcher interface {
	// Watch returns a channel that receives when the store believes that the
	// waiting claim c may now succeed. Wake-ups are hints: they can come too
	// often, and some can be lost. The watch is live before Watch returns and
	// ends with ctx. The channel is closed when the watch breaks, after which
	// the caller polls, and may watch again; when ctx ends it need not be. A
	// store that cannot wake this kind of claim returns ErrUnsupported.
	//
	// A store may admit c, if it said Push when it last asked, in the step that
	// makes room, so that nobody gets in between, and let the wake-up say so: the
	// Acquire that follows is then answered with what is left of that grant,
	// which is short. Until it has expired, a claim that does not ask keeps
	// others out.
	Watch(ctx context.Context, c Claim) (<-chan struct{}, error)
}

// Checker is a Store that tells which claims it serves before one is sent.
type Checker interface {
	// CheckClaim returns nil if the store serves claims like c, and else the error
	// with which it refuses them before anything is sent: ErrUnsupported for a kind
	// that it does not serve, ErrInvalid for what no claim may have. A claim with
	// Keep is one that is released with it. It is the same at all times, sends
	// nothing and does not block.
	CheckClaim(c Claim) error
}

// Braced is a Store that may take keys with braces, as other clients of the same
// server wrote them. Those of any other Store have none.
type Braced interface {
	// Braces tells whether it takes them. It is the same at all times.
	Braces() bool
}

// Prompt is a Store that bounds its calls by itself, which saves its callers a
// timer for each.
type Prompt interface {
	// Limit is how long an Acquire or a Release takes at the most, also if its
	// ctx does not end. It is the same at all times.
	Limit() time.Duration
}

// Node is a Store on one server that can say which one. A store that is made of
// several asks it, so that no server is counted twice or after it has forgotten
// what it granted.
type Node interface {
	// Node tells of the server that answers this Store. The answer is true of
	// every grant that arrived before the call: if the server was restarted
	// before such a grant, it is of its new life. It fails with ErrUnsupported if
	// the server cannot or may not tell, and with ErrUnavailable if it does not
	// answer.
	Node(ctx context.Context) (NodeInfo, error)
}

// NodeInfo says which server it is.
type NodeInfo struct {
	ID      string        // of this life of the server: another one after each start
	Replica bool          // it follows another server, and decides nothing
	Age     time.Duration // since its start, at most: it may have forgotten what is older
}
