// Package testserver starts Redis (a single server, Sentinel or Cluster), ZooKeeper,
// PostgreSQL, pgbouncer, MariaDB, RabbitMQ and a browser for tests. For most of them it
// has proxies that lose, delay and duplicate messages as the test decides.
//
//	server := testserver.StartRedis(t)
//	proxy := testserver.NewRedisProxy(t, server.Addr)
//	fault := proxy.Inject(testserver.Match{Script: "acquire"}, testserver.DropReply)
//	// connect any client to proxy.Addr, and make the call under test
//	fault.Await(t)
//	server.Pause() // and Resume, Kill, Restart
//
// Each server stops with its test, and a Shared server with the last test that uses it.
// The servers listen on free ports of 127.0.0.1, or on the hosts of a Net. The package
// never uses servers that were running before. If the test failed, the test's log has
// the end of the servers' output. If a program is not installed, the test skips and
// names the installation command. With LOCKKIT_REQUIRE_SERVERS=1 in the environment,
// the test fails instead. A function that starts a server returns when the server
// answers. The package imports no client library; package testclient has clients.
package testserver
