// Command benchmarks compares the kit with its peers and with the bare commands of
// go-redis. In many scenarios all contenders use one redis-server, which the program
// starts on a free port of 127.0.0.1 and stops. If taskset is installed, this server
// runs on one processor only. Other scenarios use several Redis servers, SQL databases
// or ZooKeeper.
//
//	make bench               # all scenarios, in about 45 minutes; writes results and README.md
//	make bench SHORT=1       # a quick look, writes nothing
//	go run . -run own,hand   # some scenarios, by a part of their names
//	go run . -full           # held leases for two minutes
//	go run . -from result.json -chart chart.svg   # draw again
//
// Contenders alternate round by round, so that disturbances of the machine affect all
// of them. A figure is the median of the rounds. A ratio is the median of the rounds'
// ratios to the best peer. Most scenarios count the holders of each key inside the
// critical section. The scenarios of SQL databases, of held leases, of replays and of
// readers do not. If a key has two holders at once, the program reports the overlap and
// fails.
//
// Commands are the commands that clients send. Calls include the commands that scripts
// call in the server. The bytes and the server's CPU time are read from INFO.
// Allocations and CPU time of the client are the figures of the whole process,
// including the loop that makes the calls. The program runs on Unix only.
//
// The program is a separate Go module, which keeps the peers out of the kit's go.mod.
package main
