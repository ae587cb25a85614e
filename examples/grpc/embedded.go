package main

import "github.com/alicebob/miniredis/v2"

// startEmbedded starts a Redis inside this process. By itself it lets no key
// age; ClockTTL has it follow the clock, as a real one does.
func startEmbedded() (addr string, stop func(), err error) {
	server, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	server.ClockTTL(true)
	return server.Addr(), server.Close, nil
}
