package main

import "github.com/alicebob/miniredis/v2"

// startEmbedded starts a Redis inside this process. By default its keys never expire.
// With ClockTTL they expire like those of a real Redis.
func startEmbedded() (addr string, stop func(), err error) {
	server, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	server.ClockTTL(true)
	return server.Addr(), server.Close, nil
}
