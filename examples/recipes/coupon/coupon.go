// Package coupon lets each account use a coupon once. It needs no lock: a unique index decides.
package coupon

import (
	"context"
	"database/sql"
)

// Schema is the table that Redeem works on. Its primary key is the unique index.
const Schema = `
CREATE TABLE redemptions (coupon text, account text, order_id text NOT NULL, PRIMARY KEY (coupon, account));`

// DB is a *sql.DB, or the *sql.Tx of the order: then a coupon of an order that is rolled back
// is free again.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Redeem uses coupon for an order of account, and reports whether it counts for this order:
// also if the order has used it before, so that a request that is sent again gets the same
// answer. It is false if another order of the account has used it.
func Redeem(ctx context.Context, db DB, coupon, account, order string) (bool, error) {
	_, err := db.ExecContext(ctx,
		`INSERT INTO redemptions (coupon, account, order_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, coupon, account, order)
	if err != nil {
		return false, err
	}
	var user string
	err = db.QueryRowContext(ctx, `SELECT order_id FROM redemptions WHERE coupon = $1 AND account = $2`, coupon, account).Scan(&user)
	return user == order, err
}
