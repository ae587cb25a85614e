// Package sqltest has no code but tests: package sqlstore on real databases, by the
// drivers that most programs use. It is a Go module of its own, so that the drivers stay
// out of the kit's go.mod. With the race detector it needs
// -gcflags=modernc.org/...=-race=false, as make test has it.
package sqltest
