//go:build !newest

package pgstore_test

import (
	"testing"
	"time"
)

// TestConnection_FullPool needs a pgx that closes a silent connection at once. Newer
// versions count the connection in the pool for 15 s.
func TestConnection_FullPool(t *testing.T) {
	t.Parallel()
	for _, c := range []slowDial{
		{"all silent", true, 100 * time.Millisecond, 4, 4, 4},
		{"one connection", true, 100 * time.Millisecond, 1, 1, 1},
	} {
		c.test(t)
	}
}
