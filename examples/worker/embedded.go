package main

import (
	"time"

	"github.com/alicebob/miniredis/v2"
)

// startEmbedded starts a Redis inside this process. By itself it lets no key
// age, and with ClockTTL it looks through all keys with each command, which is
// slow with thousands of tasks. So keys age a twentieth of a second at a time.
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
