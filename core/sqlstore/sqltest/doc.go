// Package sqltest tests package sqlstore on real databases, with the drivers that most
// programs use. It contains no other code. It is a separate Go module, so that the
// drivers stay out of the kit's go.mod. The race detector needs the flag
// -gcflags=modernc.org/...lib...=-race=false, which make test sets.
package sqltest
