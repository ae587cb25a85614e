// Package redistest runs Redis servers for tests, and puts a proxy before them
// that loses, delays and doubles what a test tells it to. It is for tests only:
// nothing outside of _test files imports it.
//
//	server := redistest.Start(t)
//	proxy := redistest.NewProxy(t, server.Addr)
//	fault := proxy.Inject(redistest.Match{Script: "acquire"}, redistest.DropReply)
//	client := redistest.Client(t, proxy.Addr)
//
// Servers and proxies end with the test that started them. Where redis-server
// is not installed, Start skips the test; with LOCKKIT_REQUIRE_SERVERS=1 it
// fails it.
package redistest
