package shop

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"gorm.io/gorm"

	"github.com/lockkit/lockkit/core"
)

func (s *site) depot(carrier string) *Depot {
	return &Depot{DB: s.DB, Locks: s.locks, Tokens: s.in, Choose: func(context.Context, string) (string, error) { return carrier, nil }}
}

func (s *site) carrier(t *testing.T, id string) string {
	t.Helper()
	var o Order
	if err := s.DB.First(&o, "id = ?", id).Error; err != nil {
		t.Fatal(err)
	}
	return o.Carrier
}

// TestShip simulates a holder that is paused after the last check of its context.
// During the pause later holders ship the order. The transaction of the paused holder
// is refused, and changes nothing.
func TestShip(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, prepare := range []bool{false, true} {
				t.Run(fmt.Sprintf("PrepareStmt %v", prepare), func(t *testing.T) {
					s, id := newSite(t, d, prepare), fmt.Sprint("order-", prepare)
					if err := s.DB.Create(&Order{ID: id}).Error; err != nil {
						t.Fatal(err)
					}
					key := core.Key("order", id)
					stale, err := s.locks.Acquire(t.Context(), key, core.Fenced())
					if err != nil {
						t.Fatal(err)
					}
					// This is as if the hold had expired in the pause.
					if err := stale.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					for _, carrier := range []string{"first", "second"} {
						if err := s.depot(carrier).Ship(t.Context(), id); err != nil || s.carrier(t, id) != carrier {
							t.Errorf("got the carrier %q and %v, want %q", s.carrier(t, id), err, carrier)
						}
					}
					o := &Order{ID: id, Carrier: "stale"}
					if err := s.depot("").write(t.Context(), key, stale.Token(), o); !errors.Is(err, core.ErrLost) {
						t.Errorf("the paused holder: got %v, want %v", err, core.ErrLost)
					}
					if got := s.carrier(t, id); got != "second" {
						t.Errorf("got the carrier %q, want %q", got, "second")
					}
				})
			}
		})
	}
}

// TestQuerier_NoTransaction checks that CheckToken is refused outside a transaction and
// after the rollback of its transaction, and that a rollback also forgets the token.
func TestQuerier_NoTransaction(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for _, prepare := range []bool{false, true} {
				s, resource := newSite(t, d, prepare), fmt.Sprint("order:", prepare)
				check := func(tx *gorm.DB, token uint64) error {
					return s.in.CheckToken(t.Context(), Querier(tx), resource, token)
				}
				if err := check(s.DB, 9); !errors.Is(err, core.ErrInvalid) {
					t.Errorf("PrepareStmt %v: got %v, want %v", prepare, err, core.ErrInvalid)
				}
				tx := s.DB.Begin()
				if err := errors.Join(tx.Error, check(tx, 8), tx.Rollback().Error); err != nil {
					t.Fatal(err)
				}
				if err := check(tx, 8); !errors.Is(err, core.ErrInvalid) {
					t.Errorf("PrepareStmt %v, after a rollback: got %v, want %v", prepare, err, core.ErrInvalid)
				}
				if err := s.DB.Transaction(func(tx *gorm.DB) error { return check(tx, 7) }); err != nil {
					t.Errorf("PrepareStmt %v, a token below one that was rolled back: got %v, want nil", prepare, err)
				}
			}
		})
	}
}
