// Package zktest starts ZooKeeper servers for tests, one by itself or three
// that form an ensemble, and puts proxies before them that understand the
// protocol and lose what a test tells them to.
//
// Servers run on free ports of 127.0.0.1, with ticks of 200 ms so that sessions
// may be short, and end with their test, on Linux also if the test process is
// killed.
package zktest
