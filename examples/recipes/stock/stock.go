// Package stock sells what is there, and gives each user a coupon once. Neither needs a lock:
// the database decides both in one statement.
package stock

import (
	"context"
	"database/sql"
)

// Schema is what the two functions work on.
const Schema = `
CREATE TABLE stock (sku text PRIMARY KEY, left_over int NOT NULL CHECK (left_over >= 0));
CREATE TABLE redemptions (coupon text, account text, PRIMARY KEY (coupon, account));`

// Sell takes n of sku, and reports whether so many were left.
func Sell(ctx context.Context, db *sql.DB, sku string, n int) (bool, error) {
	return changed(db.ExecContext(ctx,
		`UPDATE stock SET left_over = left_over - $1 WHERE sku = $2 AND left_over >= $1`, n, sku))
}

// Redeem notes that account uses coupon, and reports whether it had not before.
func Redeem(ctx context.Context, db *sql.DB, coupon, account string) (bool, error) {
	return changed(db.ExecContext(ctx,
		`INSERT INTO redemptions (coupon, account) VALUES ($1, $2) ON CONFLICT DO NOTHING`, coupon, account))
}

func changed(r sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}
