// Package pgtest runs PostgreSQL servers for tests, poolers before them, and a
// proxy that loses what a test tells it to. It is for tests only: nothing outside
// of _test files imports it.
//
//	server := pgtest.Start(t)
//	pool := pgtest.Pool(t, server.URL())
//	pooler := pgtest.StartPooler(t, server)
//
// They end with the test that started them. Where PostgreSQL is not installed,
// Start skips the test; with LOCKKIT_REQUIRE_SERVERS=1 it fails it.
package pgtest
