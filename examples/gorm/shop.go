// Package shop is a recipe for the payment of an order under httpmw.Idempotent. A
// transaction of gorm commits the row of the order and the answer together. README.md
// has the limits of the recipe.
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
	Carrier string `gorm:"size:100" json:"carrier,omitempty"` // "" until the order is shipped
}

// Charge takes the money at the provider, and returns a receipt. For a key that the
// provider has already seen, it returns the first receipt.
type Charge func(ctx context.Context, key, order string) (receipt string, err error)

// Shop serves orders.
type Shop struct {
	DB     *gorm.DB // not the pool of the locks
	Charge Charge
}

// Routes mounts the service on r. The store of runs must be a sqlstore.Store in the
// database of s.DB.
func (s *Shop) Routes(r gin.IRoutes, runs *once.Once, customer httpmw.KeyFunc) {
	r.POST("/orders/:id/pay", httpmw.Idempotent(runs, customer, httpmw.Detached()), s.pay)
}

// pay charges with the same key in each attempt, and then stores the order. It does not
// charge an order that is stored, because providers forget a key after some time.
func (s *Shop) pay(c *gin.Context) {
	ctx, id := c.Request.Context(), c.Param("id")
	if id == "" { // gin serves /orders//pay too
		c.AbortWithStatus(http.StatusNotFound)
		return
	}
	var o Order
	err := s.DB.WithContext(ctx).Where("id = ?", id).Limit(1).Find(&o).Error
	if err != nil {
		c.AbortWithStatus(http.StatusServiceUnavailable)
		return
	}
	if o.Receipt == "" {
		o.ID = id
		if o.Receipt, err = s.Charge(ctx, providerKey(id), id); err != nil {
			c.AbortWithStatus(http.StatusBadGateway)
			return
		}
	}
	err = s.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Clauses(clause.OnConflict{DoNothing: true}).Create(&o).Error; err != nil {
			return err
		}
		c.JSON(http.StatusCreated, o)
		return httpmw.Commit(c, In(tx)) // the last statement
	})
	if err != nil && !c.Writer.Written() {
		c.AbortWithStatus(http.StatusServiceUnavailable)
	}
	// Idempotent holds a written answer back. It sends the answer if the transaction
	// was committed, and otherwise 503.
}

// In returns the transaction of tx as a once.Saver, for httpmw.Commit and once.Commit.
func In(tx *gorm.DB) sqlstore.Tx { return sqlstore.In(Querier(tx)) }

// Querier returns the transaction of tx for CheckToken and sqlstore.In. With PrepareStmt
// it returns the transaction inside gorm's wrapper. The wrapper would prepare and keep
// each statement of the kit, and Scan would panic after a statement that cannot be
// prepared.
func Querier(tx *gorm.DB) sqlstore.Querier {
	if prepared, ok := tx.Statement.ConnPool.(*gorm.PreparedStmtTX); ok {
		return prepared.Tx
	}
	return tx.Statement.ConnPool
}

// providerKey returns the idempotency key for the provider. It depends only on the
// order, so an order is charged once under any key of the client.
func providerKey(order string) string {
	sum := sha256.Sum256([]byte("charge\x00" + order))
	return hex.EncodeToString(sum[:])
}
