// Package matrix proves the kit message by message: each operation of a lease,
// with each thing that can befall its message, on each kind of Redis. What has to
// come of a cell is written down in a table, and is looked at from outside: the
// key itself, what others are answered, and the tokens.
//
// The package has only tests.
package matrix
