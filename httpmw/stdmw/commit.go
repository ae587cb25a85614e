package stdmw

import (
	"net/http"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Commit saves what the handler has written to w so far as the answer of the request r, in the
// caller's own transaction tx, as once.Commit does: its effect and its answer are committed
// together, or neither is. The handler writes its answer, calls Commit as the last statement of
// the transaction, commits that, and returns. What it writes after Commit is ignored:
//
//	w.WriteHeader(http.StatusCreated)
//	w.Write(receipt)
//	if err := stdmw.Commit(w, r, sqlstore.In(tx)); err != nil {
//		tx.Rollback()
//		return
//	}
//	tx.Commit() // Idempotent finds out whether that has succeeded
//
// From then on the database decides what is sent: the answer if it was committed, and else 503
// with the problem idempotency-uncommitted. So it is after an error of Commit too, with 500 if
// that matches core.ErrInvalid or core.ErrUnsupported: what was written is not true then. The
// handler rolls back, and may repeat the transaction with another Commit.
//
// It fails as once.Commit does. Before anything is sent it fails with core.ErrInvalid also if
// there is no Idempotent around the handler, if nothing was written, if the answer is one
// that is not kept, and if w is not the writer of Idempotent: a middleware that replaces the
// writer, as by compressing, belongs outside of Idempotent then. The context of r is not that of a
// once.Do in the handler: Commit would save the answer of that run.
func Commit(w http.ResponseWriter, r *http.Request, tx once.Saver) error {
	return pkg.Commit(r.Context(), tx, func(rec *guard.Recorder) bool {
		in, ok := w.(*inside) // another writer may still have what was written to it
		return ok && in.rec == rec
	})
}
