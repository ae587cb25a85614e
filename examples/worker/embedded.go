package main

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startEmbedded starts a Redis inside this process. By default its keys never expire.
// With ClockTTL it checks all keys at each command, which is slow with thousands of
// tasks. Instead the server's clock is advanced every 50 ms.
func startEmbedded() (addr string, stop func(), err error) {
	server, err := miniredis.Run()
	if err != nil {
		return "", nil, err
	}
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			case <-done:
				return
			}
		}
	}()
	return server.Addr(), func() {
		close(done)
		server.Close()
	}, nil
}
