package zktest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// session is long enough for a busy machine.
	session = 60 * time.Second
	// patience bounds what should come at once.
	patience = 2 * time.Minute
)

// eventually fails the test unless what is wanted comes soon.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for stop := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(stop) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}
