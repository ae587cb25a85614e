package clock

import (
	"context"
	"time"
)

// Sleep waits for the duration d. It fails with the cause of ctx if ctx is done then or
// earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
