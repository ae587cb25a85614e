// Package offline prevents tests from querying DNS servers. It also names a function in
// which goroutines of go-redis outlive their pool.
package offline

import (
	"context"
	"errors"
	"net"
)

// Resolve makes all later lookups of names fail at once, except lookups of names in the
// hosts file. Call it in TestMain.
//
// redis.NewFailoverClient looks up the placeholder that it uses as an address. If a DNS
// server does not answer, goroutines of that lookup outlive the client and the test.
func Resolve() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("tests ask no DNS server")
	}}
}

// Dialing is the function in which a goroutine of go-redis waits after the dials of a
// pool have failed. The function returns at most a second after the pool was closed.
const Dialing = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"
