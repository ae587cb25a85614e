// Package coupon lets each account use a coupon once. It needs no lock: a unique index
// decides.
package coupon

import (
	"context"
	"database/sql"
)

// Schema creates Redeem's table. Its primary key is the unique index.
const Schema = `
CREATE TABLE redemptions (coupon text, account text, order_id text NOT NULL, PRIMARY KEY (coupon, account));`

// DB is a *sql.DB, or the *sql.Tx of the order. If it is the Tx, a rollback of the order
// also frees the coupon.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Redeem uses coupon for an order of account, and reports whether the coupon counts for
// this order. A repeated call for the same order reports true again. Redeem reports
// false if another order of the account has used the coupon. first reports whether this
// call has used the coupon.
func Redeem(ctx context.Context, db DB, coupon, account, order string) (counts, first bool, err error) {
	r, err := db.ExecContext(ctx,
		`INSERT INTO redemptions (coupon, account, order_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, coupon, account, order)
	if err != nil {
		return false, false, err
	}
	rows, err := r.RowsAffected()
	if err != nil {
		return false, false, err
	}
	var user string
	err = db.QueryRowContext(ctx, `SELECT order_id FROM redemptions WHERE coupon = $1 AND account = $2`, coupon, account).Scan(&user)
	return user == order, rows == 1, err
}
