package zkstore

// The names, the queue that they make, and the tokens, for tests.
var (
	Escape = escape
	Token  = token
	Parse  = func(name string) bool { _, ok := parse(name); return ok }
)

// Admitted is which of the children are held, and by what wait for which.
func Admitted(children []string) map[string]bool {
	l := newLine(children)
	held := make(map[string]bool)
	for _, n := range l.nodes {
		held[n.name] = l.admits(n)
	}
	return held
}
