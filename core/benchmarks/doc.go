// Package benchmarks measures the kit beside its peers and beside the bare
// commands, on one redis-server that the benchmarks start. It is a Go module of
// its own, so that no peer enters the kit's go.mod.
//
//	make bench
package benchmarks
