package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// newCommand returns a call of a script on a lock's key. The script's first argument,
// what, begins with the operation, which SLOWLOG and MONITOR show.
func (s *Store) newCommand(of *pipeline.Script, key string, what any) *pipeline.Call {
	var room [64]byte
	return s.pipeline.Eval(of, s.named(room[:0], key), "", what)
}

// call sends c and returns its answer, and the outcome of the WAIT after c.
func (s *Store) call(ctx context.Context, op string, c *pipeline.Call) (answer, pipeline.Replicated, error) {
	r, err := s.pipeline.Do(ctx, c)
	if err != nil {
		return answer{}, r, s.failure(ctx, op, err)
	}
	a, err := s.delivered(ctx, op, r.Reply)
	return a, r, err
}

// delivered reads an answer, and publishes the messages that silent.lua has added to
// it. If these messages are lost, the waiters ask again after a pause.
func (s *Store) delivered(ctx context.Context, op string, v any) (answer, error) {
	list, ok := v.([]any)
	if !ok || len(list) < 4 || list[0] != behind {
		return parse(op, v)
	}
	_, _ = away(ctx, func(ctx context.Context) ([]redis.Cmder, error) {
		return s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := 2; i+1 < len(list); i += 2 {
				p.Do(ctx, "publish", list[i], list[i+1])
			}
			return nil
		})
	})
	return parse(op, list[1])
}

// away runs work in a separate goroutine. If ctx is done or the limit of a call has
// passed, away returns early. The outcome of work is then lost.
func away[T any](ctx context.Context, work func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := pipeline.Bounded(ctx)
	defer cancel()
	return pipeline.Detached(ctx, func() (T, error) { return work(ctx) })
}

// failure returns the error of a failed call. The error matches store.ErrUnavailable if
// the call certainly changed nothing. In a Cluster, failure also makes the client reload
// the slots, because the client itself would reload them only before a retry.
func (s *Store) failure(ctx context.Context, op string, err error) error {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
	class := pipeline.ClassOf(err)
	unchanged := !pipeline.Sent(err) || class.Unchanged
	if class.Advice != "" {
		err = fmt.Errorf("%s: %w", class.Advice, err)
	}
	err = because(ctx, err)
	if unchanged {
		return fmt.Errorf("redisstore: %s: %w: %w", op, store.ErrUnavailable, err)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: %w", op, claims.Classless(err))
}

func isReply(err error, code string) bool { return err != nil && redis.HasErrorPrefix(err, code) }

// unanswered returns the error of a request that only reads. The error always matches
// store.ErrUnavailable.
func (s *Store) unanswered(ctx context.Context, op string, err error) error {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
	return fmt.Errorf("redisstore: %s: %w: %w", op, store.ErrUnavailable, because(ctx, err))
}

// doneGrace is the maximum time to wait for a context that is done after its deadline.
const doneGrace = 100 * time.Millisecond

// because adds the cause to err if ctx is done, and shortens long texts.
func because(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		// The socket has the same deadline, and its time-out can come slightly before
		// ctx is done. The contexts of some callers are never done.
		select {
		case <-ctx.Done():
		case <-time.After(doneGrace):
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, pipeline.Cause(ctx))
	}
	return brief.Error(err)
}

// answer is the answer of a script: a list of a word, usually a number, and further
// values. An answer that is a single number, or the digits of a number, means okay and
// that number.
type answer struct {
	word, n int64
	list    []any
}

func parse(op string, v any) (answer, error) {
	switch v := v.(type) {
	case int64:
		return answer{word: okay, n: v}, nil
	case string:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			return answer{word: okay, n: n}, nil
		}
	case []any:
		if len(v) == 0 {
			break
		}
		a := answer{list: v}
		var ok bool
		if a.word, ok = v[0].(int64); !ok {
			break
		}
		if len(v) > 1 {
			a.n, _ = v[1].(int64)
		}
		return a, nil
	}
	return answer{}, fmt.Errorf("redisstore: %s: outcome unknown: answer of type %T cannot be read", op, v)
}
