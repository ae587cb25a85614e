package guard_test

import (
	"net/http"
	"testing"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// TestNote_Refuse checks that a second refusal to the same writer does not hide that the
// handler ran before the first.
func TestNote_Refuse(t *testing.T) {
	t.Parallel()
	to := http.Header{}
	for name, c := range map[string]struct {
		second http.Header
		want   bool
	}{
		"same writer":    {to, true},
		"another writer": {http.Header{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var note guard.Note
			note.Refuse(guard.Refusal{Status: http.StatusServiceUnavailable, Ran: true, To: to})
			note.Refuse(guard.Refusal{Status: http.StatusConflict, To: c.second})
			if got := note.Refusal; got.Ran != c.want || got.Status != http.StatusConflict {
				t.Errorf("got status %d, ran %v, want status 409, ran %v", got.Status, got.Ran, c.want)
			}
		})
	}
}
