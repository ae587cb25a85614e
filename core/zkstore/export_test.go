package zkstore

import (
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The names, the queue that they make, and the tokens, for tests.
var (
	Escape = escape
	Token  = token
	Parse  = func(name string) bool { _, ok := parse(name); return ok }
)

// NoteOf reads the data of a node. It returns the time left of its hold so long after
// it was written, and the same data written again.
func NoteOf(text []byte, since time.Duration) (left time.Duration, again []byte) {
	n := parseNote(text)
	return n.left(since), n.text()
}

// CardOf reads the data of a card's node.
func CardOf(text []byte, since time.Duration) (store.Card, bool) {
	return parseCard("AAAAAAAA", text, since)
}

// Replies returns the codes of the errors in the table, also of those with a variable:
// whether nothing was changed, and a word of the error.
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

// Admitted returns which of the children are held, and which child waits for which.
func Admitted(children []string) map[string]bool {
	l := newLine(children)
	held := make(map[string]bool)
	for _, n := range l.nodes {
		held[n.name] = l.admits(n)
	}
	return held
}
