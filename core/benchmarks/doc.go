// Command benchmarks measures the kit beside its peers and beside the bare
// commands of go-redis, on one redis-server that it starts on a free port of
// 127.0.0.1 and ends; taskset, if it is there, keeps that on one processor.
//
//	make bench               # all scenarios, some minutes; writes result.json, chart.svg and the table of README.md
//	make bench SHORT=1       # a quick look, writes nothing
//	go run . -run own,hand   # some scenarios, by a part of their names
//	go run . -full           # held leases for two minutes
//	go run . -from result.json -chart chart.svg   # draw again
//
// Contenders take turns, round by round, so that a noise of the machine meets
// all of them; a figure is the median of the rounds, a ratio the median of the
// rounds' ratios to the best peer's. The holders of each key are counted inside
// every critical section; two at once is reported, and the command fails.
//
// Commands are those that a client sends; calls include what scripts call in
// the server. Bytes, and the server's CPU time, are from INFO; allocations and
// CPU time of the client are those of the whole process, with the loop that
// drives it. Unix only.
//
// It is a Go module of its own, so that no peer enters the kit's go.mod.
package main
