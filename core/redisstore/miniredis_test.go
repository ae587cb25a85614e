package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/core/storetest"
)

// The embedded Redis that users test with, and that the examples run on, says
// nothing about a real one, but the store has to work on it.
func TestStoreOnMiniredis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	server.ClockTTL(true)
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() core.Store {
			return func() core.Store { return newStore(t, redistest.Client(t, server.Addr())) }
		},
		Unit:    200 * time.Millisecond,
		Without: []storetest.Feature{storetest.Records, storetest.Handover},
	})
}
