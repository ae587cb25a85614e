package zkstore

import (
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
)

// These names give tests access to node names and tokens.
var (
	Escape = escape
	Token  = token
	Parse  = func(name string) bool { _, ok := parse(name); return ok }
)

// NoteOf parses the data of a node. since is the time since the node was written.
// NoteOf returns the remaining time of the node's hold, and the same data encoded
// again.
func NoteOf(text []byte, since time.Duration) (left time.Duration, again []byte) {
	n := parseNote(text)
	return n.left(since), n.text()
}

// CardOf parses the data of a card's node.
func CardOf(text []byte, since time.Duration) (store.Card, bool) {
	return parseCard("AAAAAAAA", text, since)
}

// Replies returns the error codes for which the client has no variable. For each code
// it reports whether nothing was changed, and returns the advice for the user.
func Replies() map[int32]struct {
	Refused bool
	Advice  string
} {
	all := make(map[int32]struct {
		Refused bool
		Advice  string
	})
	for code, r := range codes {
		all[int32(code)] = struct {
			Refused bool
			Advice  string
		}{r.refused, r.advice}
	}
	return all
}

// Admitted reports for each of the children whether it is held.
func Admitted(children []string) map[string]bool {
	l := newLine(children)
	held := make(map[string]bool)
	for _, n := range l.nodes {
		held[n.name] = l.admits(n)
	}
	return held
}

// Probe is the Store's probe of its servers.
var Probe = (*Store).probe

// Swept reports whether the search for a node is complete.
func Swept(s *Store, node string) bool {
	n, _ := parse(path.Base(node))
	return s.swept(path.Dir(node), n.nonce)
}

// SetGranted replaces the session time-out that a client has negotiated, as a new
// connection to a server with other limits does.
func SetGranted(conn *zk.Conn, d time.Duration) { *grantedBy(conn) = int32(d.Milliseconds()) }
