// Package shop is a recipe: an order is paid under httpmw.Idempotent, and its row and its answer
// are committed together through a transaction of gorm. README.md says what that does not do.
package shop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/gin-gonic/gin"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/httpmw"
)

// Order holds a paid order.
type Order struct {
	ID      string `gorm:"primaryKey;size:64" json:"id"`
	Receipt string `gorm:"size:100" json:"receipt"`
}

// Charge takes the money at the provider, and returns a receipt. For a key that the provider has
// seen it returns the first receipt.
type Charge func(ctx context.Context, key, order string) (receipt string, err error)

// Shop serves orders.
type Shop struct {
	DB     *gorm.DB // its pool is not that of the locks
	Charge Charge
}

// Routes mounts the service. The runs are kept by a sqlstore.Store in the database of s.DB.
func (s *Shop) Routes(r gin.IRoutes, runs *once.Once, customer httpmw.KeyFunc) {
	r.POST("/orders/:id/pay", httpmw.Idempotent(runs, customer, httpmw.Detached()), s.pay)
}

// pay charges first, with a key that is the same for each attempt, and then keeps the order.
func (s *Shop) pay(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	receipt, err := s.Charge(ctx, providerKey(id), id)
	if err != nil {
		c.AbortWithStatus(http.StatusBadGateway)
		return
	}
	err = s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		o := Order{ID: id, Receipt: receipt}
		if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&o).Error; err != nil {
			return err
		}
		c.JSON(http.StatusCreated, o)
		return httpmw.Commit(c, In(tx)) // the last statement
	})
	if err != nil && !c.Writer.Written() {
		c.AbortWithStatus(http.StatusServiceUnavailable)
	}
	// Otherwise Idempotent sends the answer if it was committed, and else 503.
}

// In returns the transaction of tx for httpmw.Commit and once.Commit. With PrepareStmt it is the
// one inside of gorm's: Commit's statements would each be prepared and kept there, and one that
// cannot be prepared is a panic in Scan.
func In(tx *gorm.DB) sqlstore.Tx {
	if prepared, ok := tx.Statement.ConnPool.(*gorm.PreparedStmtTX); ok {
		return sqlstore.In(prepared.Tx)
	}
	return sqlstore.In(tx.Statement.ConnPool)
}

// providerKey is the idempotency key at the provider: an order is charged once, whatever key the
// client has sent.
func providerKey(order string) string {
	sum := sha256.Sum256([]byte("charge\x00" + order))
	return hex.EncodeToString(sum[:])
}
