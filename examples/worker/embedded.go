package main

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startEmbedded starts a miniredis in this process. By default the keys of a miniredis
// never expire. With ClockTTL a miniredis checks all keys at each command, which is slow
// with thousands of tasks. Instead startEmbedded advances the server's clock every 50 ms.
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
