package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
)

// admitReplicated is admit, and then waits until enough replicas have the
// grant. WAIT counts those that have what its own connection wrote, so it
// travels with the script, in one pipeline to the master of the key.
func (s *Store) admitReplicated(ctx context.Context, c *core.Claim, cmd *command) (core.Grant, error) {
	if _, doomed := s.doomed.Load(c.Lease); doomed {
		return core.Grant{}, errors.New("redisstore: acquire: outcome unknown: an earlier grant of this lease is being given back")
	}
	o, a, err := s.callReplicated(ctx, "acquire", cmd)
	if err != nil {
		return core.Grant{}, err
	}
	g, err := granted(c, a)
	switch {
	case err != nil:
		return core.Grant{}, err
	case g.Record != nil && g.Record.Done:
		return g, nil // nothing was claimed
	case o.err != nil:
		return core.Grant{}, fmt.Errorf("redisstore: acquire: outcome unknown: waiting for replicas: %w", o.err)
	case o.acks < int64(s.replicas):
		return core.Grant{}, s.giveBack(ctx, c, o.acks)
	}
	return g, nil
}

// settleReplicated is settle for an answer that is saved, and then waits until
// enough replicas have it. What is saved stays, so the outcome is open if too few
// have; the same release again waits for them again.
func (s *Store) settleReplicated(ctx context.Context, op string, cmd *command) error {
	o, a, err := s.callReplicated(ctx, op, cmd)
	if err == nil {
		err = confirmed(op, a)
	}
	switch {
	case err != nil:
		return err
	case o.err != nil:
		return fmt.Errorf("redisstore: %s: outcome unknown: waiting for replicas: %w", op, o.err)
	case o.acks < int64(s.replicas):
		return fmt.Errorf("redisstore: %s: outcome unknown: %d of %d replicas have what was saved", op, o.acks, s.replicas)
	}
	return nil
}

// callReplicated sends c and a WAIT, and returns what became of both and the
// answer to c.
func (s *Store) callReplicated(ctx context.Context, op string, c *command) (replicated, answer, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	o, err := leave(ctx, c.flight, func() (replicated, error) { return s.sendReplicated(ctx, c) })
	if err != nil {
		return o, answer{}, s.failure(ctx, op, c.flight, err)
	}
	a, err := parse(op, o.answer)
	return o, a, err
}

// replicated is what became of a script and the WAIT behind it.
type replicated struct {
	answer any
	acks   int64
	err    error // of the WAIT
}

func (s *Store) sendReplicated(ctx context.Context, c *command) (replicated, error) {
	client, asking := s.client, false
	if s.cluster != nil {
		master, err := s.cluster.MasterForKey(ctx, c.key.String())
		if err != nil {
			return replicated{}, err
		}
		client = master
	}
	last := c
	for sent := 1; ; sent++ {
		wait := s.sendWithWait(ctx, client, last, asking)
		err := last.Cmd.Err()
		if err == nil {
			answer, err := c.reply(last)
			acks, waitErr := wait.Int64()
			return replicated{answer, acks, waitErr}, err
		}
		unknown, gone := isReply(err, "NOSCRIPT") && last == c, s.cluster != nil && moved(err)
		if !unknown && !gone || !c.flight.again() || gone && !pursue(ctx, sent) {
			return replicated{}, err
		}
		last = c.whole(ctx)
		if !gone {
			continue
		}
		// The cluster client does not follow, because it would not take the WAIT
		// along.
		asking = false
		if to := s.redirected(ctx, err); to != nil {
			client, asking = to, isReply(err, "ASK")
		} else if master, err := s.cluster.MasterForKey(ctx, c.key.String()); err == nil {
			client = master
		}
	}
}

// sendWithWait sends c and a WAIT in one pipeline and returns the WAIT.
func (s *Store) sendWithWait(ctx context.Context, client redis.UniversalClient, c *command, asking bool) *redis.Cmd {
	limit := s.ackWait
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	// A WAIT of 0 would wait for ever.
	wait := single{redis.NewCmd(ctx, "wait", s.replicas, max(limit.Milliseconds(), 1))}
	pipe := client.Pipeline()
	if asking {
		_ = pipe.Process(ctx, single{redis.NewCmd(ctx, "asking")})
	}
	_ = pipe.Process(ctx, c)
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx)
	return wait.Cmd
}

// single is a command that go-redis sends once.
type single struct{ *redis.Cmd }

func (single) NoRetry() bool { return true }

// redirected returns the master that a reply of MOVED or ASK names, or nil.
func (s *Store) redirected(ctx context.Context, err error) *redis.Client {
	addr, ok := redis.IsMovedError(err)
	if ok {
		s.cluster.ReloadState(ctx)
	} else if addr, ok = redis.IsAskError(err); !ok {
		return nil
	}
	found := make(chan *redis.Client, 1)
	_ = s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
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

// giveBack releases a grant that too few replicas have, takes back the run that
// it began, and returns the error to answer with. The release does not end with ctx, but is not waited for any
// longer than that.
func (s *Store) giveBack(ctx context.Context, c *core.Claim, acks int64) error {
	short := fmt.Errorf("%d of %d replicas have the grant", acks, s.replicas)
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	begun := *c
	begun.Record, begun.Undo = nil, true // it is not there to be saved
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- s.Release(back, begun)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil || errors.Is(err, core.ErrLost) {
		return fmt.Errorf("redisstore: acquire: %w: %w", core.ErrUnavailable, short)
	}
	// The release may still come, and would end what the same claim is granted
	// when it is asked again. So it is not, until it would have expired anyway.
	s.doomed.Store(c.Lease, struct{}{})
	time.AfterFunc(max(c.TTL, callLimit), func() { s.doomed.Delete(c.Lease) })
	// Not wrapped: that the release was not sent says nothing of the acquire.
	return fmt.Errorf("redisstore: acquire: outcome unknown: %w, and giving it back failed: %v", short, err)
}
