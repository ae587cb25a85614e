// Package sim tests the kit in virtual time. Its tests run several Lockers, each with its
// own go-redis client and redisstore, against one embedded Redis. The connections lose,
// delay and duplicate messages. Meanwhile the server may be emptied, and clients may be
// cut off for longer than their leases. The tests record the relevant events outside of
// the kit, and judge the records after the run. The store is not notified when leases
// pass on a hold within a process. The records assign such a lease to the Acquire that
// was granted the hold.
//
// A seed fixes the actions and pauses of each program, and the fault of each client's
// n-th command. It does not fix the transmission time of a message, or the order of
// events at the same instant. To replay a seed:
//
//	go test ./core/proof/sim -run TestSimulation -seed 4711 -count 20 -v
//
// The package has only tests.
package sim
