package brief_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/internal/brief"
)

func TestBrief(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                             "",
		strings.Repeat("x", 200):       strings.Repeat("x", 200),
		strings.Repeat("x", 201):       strings.Repeat("x", 200) + "… (1 bytes more)",
		strings.Repeat("é", 101):       strings.Repeat("é", 100) + "… (2 bytes more)",
		"x" + strings.Repeat("é", 100): "x" + strings.Repeat("é", 99) + "… (2 bytes more)",
		strings.Repeat("\x80", 300):    strings.Repeat("\x80", 196) + "… (104 bytes more)",
	} {
		if got := brief.Text(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
	if brief.Error(nil) != nil {
		t.Error("no error is one")
	}
	own := errors.New("own")
	if brief.Error(own) != own {
		t.Error("a short error is another one")
	}
	long := brief.Error(fmt.Errorf("%s: %w", strings.Repeat("x", 1000), own))
	if !errors.Is(long, own) || len(long.Error()) > 230 {
		t.Errorf("got %v", long)
	}
}
