package sqltest

import (
	"crypto/rand"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		d.place(t) // makes the tables
		var alone sync.Mutex
		files := t.TempDir()
		storetest.Run(t, storetest.Harness{
			New: func(t testing.TB) func() store.Store {
				d := d
				if d.driver == "sqlite" { // where all cases would wait for one file, and for the disk
					if strings.Contains(t.Name(), "/concurrency/") { // which take all there is of a processor
						alone.Lock()
						t.Cleanup(alone.Unlock)
					}
					d.dsn = "file:" + filepath.Join(files, rand.Text()) + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)"
				}
				return func() store.Store { return d.store(t) }
			},
			Unit:    400 * time.Millisecond,
			Without: []storetest.Feature{storetest.Watching},
		})
	})
}
