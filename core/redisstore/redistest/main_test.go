package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // clients tell of every server that a test has ended
	goleak.VerifyTestMain(m)
}
