// Package stock never sells more than is in stock. It needs no lock, because the database
// decides in one statement.
package stock

import (
	"context"
	"database/sql"
	"fmt"
)

// Schema creates Sell's table.
const Schema = `
CREATE TABLE stock (sku text PRIMARY KEY, left_over int NOT NULL CHECK (left_over >= 0));`

// Sell takes n of sku out of the stock if at least n are left, and reports whether enough
// was left. It refuses an n below 1, which would add to the stock.
func Sell(ctx context.Context, db *sql.DB, sku string, n int) (bool, error) {
	if n < 1 {
		return false, fmt.Errorf("stock: sell %d: out of range (at least 1)", n)
	}
	r, err := db.ExecContext(ctx,
		`UPDATE stock SET left_over = left_over - $1 WHERE sku = $2 AND left_over >= $1`, n, sku)
	if err != nil {
		return false, err
	}
	rows, err := r.RowsAffected()
	return rows == 1, err
}
