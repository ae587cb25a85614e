package main

import "github.com/alicebob/miniredis/v2"

// startEmbedded starts a miniredis in this process. It sets ClockTTL, because by default
// the keys of a miniredis never expire.
func startEmbedded() (addr string, stop func(), err error) {
	server, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	server.ClockTTL(true)
	return server.Addr(), server.Close, nil
}
