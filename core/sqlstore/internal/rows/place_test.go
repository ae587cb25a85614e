package rows

import (
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// TestLoad_Standby checks that a read that a standby has answered is an error.
func TestLoad_Standby(t *testing.T) {
	t.Parallel()
	for _, current := range []bool{false, true} {
		row := []driver.Value{true, false, int64(dialect.SchemaVersion), "id", int64(0), int64(1), int64(0), nil, int64(0), int64(0), nil, nil, int64(0), int64(0), int64(0), int64(0), nil, nil}
		_, err := newFake(t, answer{tuple: row}).Load(t.Context(), "key", casstore.Want{Current: current})
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to the primary") {
			t.Errorf("got %v, want %v that names the primary", err, store.ErrUnavailable)
		}
		row[1] = true
		if _, err := newFake(t, answer{tuple: row}).Load(t.Context(), "key", casstore.Want{Current: current}); err != nil {
			t.Errorf("of the primary: got %v, want nil", err)
		}
	}
}
