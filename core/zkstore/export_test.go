package zkstore

// The names and the queue that they make, for tests.
var (
	Escape = escape
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
