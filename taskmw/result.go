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
	notesOf(ctx).note(data)
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
	if n := notesOf(ctx); n != nil {
		for n != nil && n.lock {
			n = n.outer
		}
		if n != nil {
			a = n.answer()
		}
	}
	return once.Commit(ctx, tx, a)
}

type notesKey struct{}

// notes has what a middleware records of the handlers inside: the result, whether a
// handler was reached, and whether the progress of the last try is unknown. A Lock
// passes its notes on to an Idempotent outside.
//
// notes is the context of the handlers inside.
type notes struct {
	context.Context
	typename string // of the task
	lock     bool   // of a Lock
	outer    *notes // the notes of an outer middleware, which have the same result

	mu      sync.Mutex
	kept    once.Answer
	running int  // tries of inner middlewares that have not returned
	ran     bool // a try reached the handler
	unclear bool // the progress of the last of these tries is unknown
}

// Value implements context.Context.
func (n *notes) Value(key any) any {
	if key == (notesKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// String implements fmt.Stringer. Otherwise a printed context would show the result.
func (n *notes) String() string { return "taskmw notes" }

// notesOf returns the notes of the innermost middleware around ctx, or nil.
func notesOf(ctx context.Context) *notes {
	n, _ := ctx.Value(notesKey{}).(*notes)
	return n
}

// try calls next under ctx, and records the result and the outcome in new notes. It
// passes the outcome on to the outer notes, even if next panics. The exception is a
// handler that processes a task of another type under its own context.
func try(ctx context.Context, t *asynq.Task, next asynq.Handler, lock bool) (n *notes, err error) {
	n = &notes{Context: ctx, typename: t.Type(), lock: lock, outer: notesOf(ctx)}
	returned, same := false, n.outer != nil && n.outer.typename == n.typename
	if same {
		n.outer.begin()
	}
	defer func() {
		if hasRun(err) {
			n.record(!returned || isUnclear(ctx, err))
		}
		if same {
			n.outer.add(n)
		}
	}()
	err = next.ProcessTask(n, t)
	returned = true
	return n, err
}

// record records a try that reached the handler. Inner middlewares can have recorded
// this try as unclear, because only their contexts were done.
func (n *notes) record(unclear bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ran, n.unclear = true, unclear || n.unclear
}

// begin records that an inner middleware calls its handler.
func (n *notes) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running++
}

// add records the tries of an inner middleware, which has returned.
func (n *notes) add(inner *notes) {
	ran, unclear := inner.tries()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.running--; ran {
		n.ran, n.unclear = true, unclear
	}
}

// tries reports whether a try has reached the handler, and whether the progress of the
// last of these tries is unknown. A middleware in between can have left a running try.
func (n *notes) tries() (ran, unclear bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ran || n.running > 0, n.unclear || n.running > 0
}

func (n *notes) note(data []byte) {
	kept := once.Answer{Unreplayable: true}
	if len(data) <= maxResult {
		kept = once.Answer{Value: append([]byte{resultVersion}, data...)}
	}
	for ; n != nil; n = n.outer {
		n.mu.Lock()
		n.kept = kept
		n.mu.Unlock()
	}
}

func (n *notes) answer() once.Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept
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
