package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) func() store.Store {
			s := memstore.New()
			return func() store.Store { return s }
		},
		Unit: 100 * time.Millisecond,
		Wrap: synctest.Test,
	})
}
