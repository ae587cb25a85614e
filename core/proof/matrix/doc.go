// Package matrix tests the kit message by message: each operation of a lease, with each
// fault of its message, on each kind of Redis. A table has the outcome of each cell. The
// tests check the outcome from outside: the key, the answers to other programs, and the
// tokens.
//
// The package has only tests.
package matrix
