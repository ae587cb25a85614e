package core_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// granting is a store that admits every claim and stores nothing.
type granting struct{ extended *atomic.Int64 }

func (granting) Acquire(_ context.Context, c store.Claim) (store.Grant, error) {
	return store.Grant{Owner: c.Owner, Token: 1}, nil
}

func (s granting) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	s.extended.Add(int64(len(claims)))
	return make([]store.Extension, len(claims))
}

func (granting) Release(context.Context, store.Claim) error { return nil }

// TestMemory limits the memory of a held lease. It is not parallel, so that it does not
// count the memory of parallel tests.
func TestMemory(t *testing.T) {
	t.Run("held lease below one KiB", func(t *testing.T) {
		var extended atomic.Int64
		l := newLocker(t, granting{&extended})
		const n = 4000 // few enough for a busy machine to acquire within a TTL
		leases := make([]*core.Lease, n)
		before := heap()
		for i := range leases {
			leases[i] = acquire(t, t.Context(), l, fmt.Sprintf("held:%d", i), core.TTL(6*time.Second))
			leases[i].Context()
		}
		// The memory that an extension needs counts too.
		for end := time.Now().Add(time.Minute); extended.Load() < 2*n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("got no extensions")
			}
		}
		if each := (heap() - before) / n; each > 1024 {
			t.Errorf("it takes %d bytes", each)
		} else {
			t.Logf("it takes %d bytes, %d of them for the Lease", each, unsafe.Sizeof(core.Lease{}))
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // frees memory that finalizers and pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
