package redisstore_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

// TestCause_OfSiblingsRefusal acquires in a group whose other member gets an error reply.
// The SET is written when the context is done, so the outcome is unknown (hazard 17).
func TestCause_OfSiblingsRefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, text := range []string{"READONLY no", "OOM no", "WRONGTYPE no", "LOADING no"} {
		c := claimed()
		held := r.proxy.Inject(testserver.Match{Command: "set", Arg: stored(c)}, testserver.HoldRequest)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-held.Fired()
			cancel(replied(text))
		}()
		_, err := r.store.Acquire(ctx, c)
		held.Await(t)
		unknown(t, "acquire", err)
		wantIs(t, "acquire", err, replied(text))
		held.Deliver()
		testserver.Eventually(t, soon, "the SET arrives", func() bool { return r.exists(t, c) })
		release(t, r.direct, c)
	}
}
