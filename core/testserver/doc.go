// Package testserver starts Redis (a single server, Sentinel or Cluster), ZooKeeper,
// PostgreSQL, pgbouncer, MariaDB, RabbitMQ and a browser for tests. It puts proxies before
// most of them that lose, delay and double messages as a test decides.
//
//	server := testserver.StartRedis(t)
//	proxy := testserver.NewRedisProxy(t, server.Addr)
//	fault := proxy.Inject(testserver.Match{Script: "acquire"}, testserver.DropReply)
//	// connect any client to proxy.Addr, and make the call under test
//	fault.Await(t)
//	server.Pause() // and Resume, Kill, Restart
//
// Everything that is started stops with its test, and listens on a free port of
// 127.0.0.1. Servers that were there before are never used. If the test failed, its log
// has the end of its servers' output. Where a program is not installed, the test skips
// and names the installation command; with LOCKKIT_REQUIRE_SERVERS=1 it fails.
// Functions that start a server return when it answers. The package imports no client
// library; package testclient has clients.
package testserver
