package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) func() core.Store {
			s := memstore.New()
			return func() core.Store { return s }
		},
		Unit: 100 * time.Millisecond,
		Wrap: synctest.Test,
	})
}
