package redisstore_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() core.Store {
			return func() core.Store {
				s, err := redisstore.New(server.Client())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { s.Close() })
				return s
			}
		},
		Unit:    200 * time.Millisecond,
		Without: []storetest.Feature{storetest.Records, storetest.Handover},
	})
}
