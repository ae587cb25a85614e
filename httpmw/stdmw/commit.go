package stdmw

import (
	"net/http"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Commit stores what the handler has written to w so far as the response to the request
// r, in the caller's own transaction tx, as once.Commit does. The handler's effect and
// its response are committed together, or neither is. The handler writes its response,
// calls Commit as the last statement of the transaction, commits that, and returns.
// What it writes after Commit is ignored:
//
//	w.WriteHeader(http.StatusCreated)
//	w.Write(receipt)
//	if err := stdmw.Commit(w, r, sqlstore.In(tx)); err != nil {
//		tx.Rollback()
//		return
//	}
//	tx.Commit() // Idempotent finds out whether that has succeeded
//
// From then on the database decides what is sent: the response if it was committed, and
// otherwise 503 with the problem idempotency-uncommitted. The same applies after an
// error of Commit, because the written response is not true then; it is 500 if the
// error matches core.ErrInvalid or core.ErrUnsupported. The handler rolls back, and may
// repeat the transaction with another Commit.
//
// Commit fails as once.Commit does. Before anything is sent it also fails with
// core.ErrInvalid: if there is no Idempotent around the handler, if nothing was
// written, if the response is one that is not stored, and if w is not the writer of
// Idempotent. A middleware that replaces the writer, as by compressing, then belongs
// outside of Idempotent. Do not pass a request with the context of a once.Do in the
// handler: Commit would store the response of that run.
func Commit(w http.ResponseWriter, r *http.Request, tx once.Saver) error {
	return pkg.Commit(r.Context(), tx, func(rec *guard.Recorder) bool {
		in, ok := w.(*inside) // another writer may still have what was written to it
		return ok && in.rec == rec
	})
}
