package pgstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// The answers of a function, see admit in sql/acquire.sql.
const (
	okay     = "0"
	busy     = "1"
	lost     = "2"
	heavy    = "3"
	finished = "4"
	locked   = "5" // in sql/release.sql
)

// Acquire implements store.Store in one round trip.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := usable("acquire", &c); err != nil {
		return store.Grant{}, err
	}
	rows, err := s.do(ctx, "acquire", s.claim(call("acquire").text(c.Key), &c).end())
	if err != nil {
		return store.Grant{}, err
	}
	return granted(&c, rows)
}

// claim adds the arguments that admit takes.
func (s *Store) claim(st statement, c *store.Claim) statement {
	st = st.text(c.Lease).text(c.Owner).text(c.Via).num(c.Weight).num(c.Limit).num(millis(c.TTL)).
		bool(c.Fair).bool(c.Wait).num(int64(c.MinToken)).word(s.listensOn())
	if c.Record == nil {
		return st.null("bytea").num(0)
	}
	return st.bytes(c.Record.Value).num(millis(c.Record.Retain))
}

// granted reads the answer of acquire.
func granted(c *store.Claim, rows [][][]byte) (store.Grant, error) {
	unknown := errors.New("pgstore: acquire: outcome unknown: answer cannot be read")
	if len(rows) != 1 || len(rows[0]) != 7 {
		return store.Grant{}, unknown
	}
	row := rows[0]
	switch string(row[0]) {
	case okay:
		owner, err := hex.DecodeString(string(row[1]))
		token, ok := number(row[2])
		g := store.Grant{Owner: string(owner), Token: uint64(token), Record: recorded(c, row[4:])}
		if err == nil && ok && g.Owner != "" && (g.Record != nil) == (c.Record != nil) {
			return g, nil
		}
	case finished:
		if g := (store.Grant{Owner: c.Owner, Record: recorded(c, row[4:])}); g.Record != nil {
			g.Record.Done = true
			return g, nil
		}
	case busy:
		if after, ok := number(row[3]); ok {
			waiting, _ := number(row[4])
			return store.Grant{}, &store.BusyError{
				Key: c.Key, RetryAfter: time.Duration(after) * time.Millisecond, Waiting: int(waiting),
			}
		}
	case lost:
		return store.Grant{}, fmt.Errorf("pgstore: acquire: released before: %w", store.ErrLost)
	case heavy:
		return store.Grant{}, fmt.Errorf("pgstore: acquire: heavier than the hold that it joins: %w", store.ErrInvalid)
	}
	return store.Grant{}, unknown
}

// recorded reads a record: its attempt, how long it is kept, and its value. It is nil if
// the row cannot be read.
func recorded(c *store.Claim, row [][]byte) *store.Record {
	if c.Record == nil || row[2] == nil {
		return nil
	}
	attempt, okAttempt := number(row[0])
	left, okLeft := number(row[1])
	value, err := hex.DecodeString(string(row[2]))
	if !okAttempt || !okLeft || err != nil {
		return nil
	}
	return &store.Record{Attempt: int(attempt), Retain: time.Duration(left) * time.Millisecond, Value: value}
}

func number(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}
