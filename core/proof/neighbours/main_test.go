package neighbours_test

import (
	"testing"

	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	if tally.Wanted() {
		m.Run()
	}
}
