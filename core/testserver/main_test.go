package testserver_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) {
	logging.Disable() // clients log each server that a test has stopped
	offline.Resolve()
	goleak.VerifyTestMain(m)
}

const (
	// session is a session timeout that is long enough for a busy machine.
	session = 60 * time.Second
	// patience limits the wait for events that should happen at once.
	patience = 2 * time.Minute
)

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	testserver.Eventually(t, patience, what, is)
}
