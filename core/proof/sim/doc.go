// Package sim proves the kit in virtual time: its tests run several Lockers,
// each with a go-redis client and a redisstore of its own, against one embedded
// Redis, over connections that lose, delay and double what they carry, while the
// server is emptied and clients are cut off for longer than their leases. What
// decides is recorded and judged outside of the kit. Leases that are passed
// the same hold one after the other are known by the Acquire that was granted it: the
// store hears nothing of them.
//
// A run is a seed. It fixes the actions of each program and their times, and the fault
// of the n-th command of each client. The order within one instant is the scheduler's.
// To play a seed again:
//
//	go test ./core/proof/sim -run TestSimulation -seed 4711 -count 20 -v
//
// The package has only tests.
package sim
