package httpmw

import (
	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// Commit stores the response that the handler has written to c so far, in the caller's
// own transaction tx, as once.Commit does. The handler's effect and its response are
// committed together, or neither is. The handler writes its response, calls Commit as
// the last statement of the transaction, commits the transaction, and returns. Data
// that the handler writes after Commit is ignored:
//
//	c.JSON(http.StatusCreated, receipt)
//	if err := httpmw.Commit(c, sqlstore.In(tx)); err != nil {
//		tx.Rollback()
//		return
//	}
//	tx.Commit() // Idempotent finds out whether that has succeeded
//
// After Commit, the database decides the response. If the transaction was committed,
// the written response is sent. Otherwise the response is 503 with the problem
// idempotency-uncommitted. After an error of Commit the response is also 503, because
// the written response does not describe the outcome. If that error matches
// core.ErrInvalid or core.ErrUnsupported, the response is 500 with the problem
// idempotency-failed. After an error the handler rolls back, and may repeat the
// transaction with another Commit.
//
// Commit fails like once.Commit. It also fails with core.ErrInvalid, before it uses tx,
// in these cases:
//
//   - there is no Idempotent around the handler
//   - the handler has neither set a status nor written data
//   - the response is not to be stored, for example because of its status
//   - an inner middleware has replaced the writer
func Commit(c *gin.Context, tx once.Saver) error {
	return pkg.Commit(c.Request.Context(), tx, func(rec *guard.Recorder) bool { return c.Writer == guard.Writer(rec) })
}
