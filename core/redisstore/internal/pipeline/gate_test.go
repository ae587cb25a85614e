package pipeline_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/testserver"
)

// gate is a hook that delays the first call, and counts the calls.
type gate struct {
	open chan struct{}
	once sync.Once
	took chan struct{} // closed when the first call is delayed

	mu    sync.Mutex
	sizes []int // of pipelines; 1 for a call alone
	fail  func()

	before   func()       // called before the gate opens
	returned atomic.Int64 // calls that crowd makes
	texts    []string     // further arguments of these calls
}

func newGate() *gate {
	g := &gate{}
	g.close()
	return g
}

// close makes the gate delay the next call.
func (g *gate) close() {
	g.open, g.took, g.once = make(chan struct{}), make(chan struct{}), sync.Once{}
}

func (g *gate) pass(n int) {
	g.mu.Lock()
	g.sizes = append(g.sizes, n)
	fail := g.fail
	g.mu.Unlock()
	g.once.Do(func() {
		close(g.took)
		<-g.open
	})
	if fail != nil {
		fail()
	}
}

func (g *gate) sent() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sizes
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			g.pass(1)
		}
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
				g.pass(len(cmds))
				break
			}
		}
		return next(ctx, cmds)
	}
}

// crowd makes many callers take different keys at once. A first call is in flight, and
// the gate delays it until all callers wait. crowd returns their errors.
func crowd(t *testing.T, p *pipeline.Pipeline, g *gate, all []string, ctxs ...context.Context) (errs []error) {
	t.Helper()
	errs = make([]error, len(all))
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = take(t.Context(), p, newKey()) })
	<-g.took
	for i, key := range all {
		ctx := t.Context()
		if i < len(ctxs) {
			ctx = ctxs[i]
		}
		wg.Go(func() {
			_, errs[i] = take(ctx, p, key, g.texts...)
			g.returned.Add(1)
		})
	}
	testserver.Eventually(t, time.Minute, "all of them wait", func() bool { return p.Queued() == len(all) })
	if g.before != nil {
		g.before()
	}
	close(g.open)
	wg.Wait()
	return errs
}
