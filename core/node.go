package core

import (
	"context"
	"time"
)

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
