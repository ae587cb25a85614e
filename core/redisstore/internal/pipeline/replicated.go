package pipeline

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replicated is the outcome of a call and of the WAIT behind it.
type Replicated struct {
	Reply    any
	Replicas int64 // that have the write; not known if Err is not nil
	Err      error // of the WAIT
}

// replicating sends a call with a WAIT behind it. WAIT counts the replicas that have
// the writes of its own connection, so both go in one pipeline to the master of the key.
type replicating struct {
	pipeline *Pipeline
	call     *Call
	replicas int
	limit    time.Duration // of the WAIT
}

func (r *replicating) do(ctx context.Context) (Replicated, error) {
	p, c := r.pipeline, r.call
	client, asking := p.client, false
	if p.cluster != nil {
		master, err := p.cluster.MasterForKey(ctx, c.key.String())
		if err != nil {
			return Replicated{}, err
		}
		client = master
	}
	last := c
	for tries := 1; ; tries++ {
		wait := r.send(ctx, client, last, asking)
		err := last.Cmd.Err()
		if err == nil || err == redis.Nil {
			reply, err := c.result(last)
			n, waitErr := wait.Int64()
			return Replicated{reply, n, waitErr}, err
		}
		unknown, gone := unknownScript(err) && last == c, p.cluster != nil && !c.timed && moved(err)
		if !unknown && !gone || !c.state.again() || gone && !pursue(ctx, tries) {
			return Replicated{}, err
		}
		last = c.whole(ctx)
		if !gone {
			continue
		}
		// The cluster client does not follow, because it would not take the WAIT
		// along.
		asking = false
		if to := r.redirected(ctx, err); to != nil {
			client, asking = to, replied(err, "ASK")
		} else if master, err := p.cluster.MasterForKey(ctx, c.key.String()); err == nil {
			client = master
		}
	}
}

// send sends c and a WAIT in one pipeline and returns the WAIT. If c is Timed the TIME goes
// before that, which can last for longer than what c has set.
func (r *replicating) send(ctx context.Context, client redis.UniversalClient, c *Call, asking bool) *redis.Cmd {
	limit := r.limit
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	// A WAIT of 0 would wait for ever.
	wait := single{redis.NewCmd(ctx, "wait", r.replicas, max(limit.Milliseconds(), 1))}
	pipe := client.Pipeline()
	if asking {
		_ = pipe.Process(ctx, single{redis.NewCmd(ctx, "asking")})
	}
	_ = pipe.Process(ctx, c)
	if c.timed {
		_ = pipe.Process(ctx, new(clock).ready(ctx, []*Call{c}))
	}
	_ = pipe.Process(ctx, wait)
	if _, err := pipe.Exec(ctx); err != nil && c.Cmd.Err() == nil && !r.call.answered.Load() {
		c.Cmd.SetErr(err) // a hook has given up
	}
	return wait.Cmd
}

// redirected returns the master that a reply of MOVED or ASK names, or nil.
func (r *replicating) redirected(ctx context.Context, err error) *redis.Client {
	cluster := r.pipeline.cluster
	addr, ok := redis.IsMovedError(err)
	if ok {
		cluster.ReloadState(ctx)
	} else if addr, ok = redis.IsAskError(err); !ok {
		return nil
	}
	found := make(chan *redis.Client, 1)
	_ = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		if master.Options().Addr == addr {
			found <- master
		}
		return nil
	})
	select {
	case to := <-found:
		return to
	default:
		return nil
	}
}
