package taskmw

import (
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/once"
)

// maxResult is the maximum length of a result that is stored with a run, in bytes.
const maxResult = 256 << 10

// resultVersion is the first byte of a stored result. A run without a result stores
// nothing.
const resultVersion = 1

var errResult = errors.New("taskmw: the stored result has a version that this program does not know")

// WriteResult writes the result of t like t.ResultWriter().Write(data). It also records
// the result for Idempotent, which stores the result with the run. A later task under
// the same key is done with the same result. Only the last result of a run counts.
//
// ctx is the handler's context. Without an Idempotent around the handler, WriteResult
// only writes. Without a server, as in a unit test, it only records. Idempotent does
// not see a result that the handler writes directly to ResultWriter. A later task is
// then done without a result.
//
// A result of more than 256 KiB is written to t, and is not stored. Later tasks are
// then done without a result. WriteResult is safe for concurrent use. It returns the
// error of the ResultWriter, and records the result even then.
func WriteResult(ctx context.Context, t *asynq.Task, data []byte) error {
	if r, ok := ctx.Value(resultKey{}).(*result); ok {
		r.note(data)
	}
	w := t.ResultWriter()
	if w == nil {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// Commit stores the success of a task in the caller's own transaction tx, as
// once.Commit does. The result that WriteResult has written is stored with the success.
// ctx is the handler's context. The handler's effect and its success are committed
// together, or neither is. The handler first writes the result, then calls Commit as
// the last statement of the transaction, and then commits the transaction. A result
// that is written after Commit is not stored.
//
// Commit fails like once.Commit, and with core.ErrInvalid if there is no Idempotent
// around the handler. Do not pass the ctx of a once.Do inside the handler: Commit would
// store the result as the answer of that run.
func Commit(ctx context.Context, tx once.Saver) error {
	var a once.Answer
	if r, ok := ctx.Value(resultKey{}).(*result); ok {
		a = r.answer()
	}
	return once.Commit(ctx, tx, a)
}

type resultKey struct{}

// result has the recorded result of a run.
type result struct {
	outer *result // the result of an outer Idempotent, which has the same value

	mu   sync.Mutex
	kept once.Answer
}

// noting returns a new result, and a context with which WriteResult records data in
// this result.
func noting(ctx context.Context) (context.Context, *result) {
	r := &result{}
	r.outer, _ = ctx.Value(resultKey{}).(*result)
	return context.WithValue(ctx, resultKey{}, r), r
}

func (r *result) note(data []byte) {
	kept := once.Answer{Unreplayable: true}
	if len(data) <= maxResult {
		kept = once.Answer{Value: append([]byte{resultVersion}, data...)}
	}
	for ; r != nil; r = r.outer {
		r.mu.Lock()
		r.kept = kept
		r.mu.Unlock()
	}
}

func (r *result) answer() once.Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept
}

// replay writes the result of an earlier run to t.
func replay(ctx context.Context, t *asynq.Task, value []byte) error {
	switch {
	case len(value) == 0:
		return nil
	case value[0] != resultVersion:
		return errResult
	}
	return WriteResult(ctx, t, value[1:])
}
