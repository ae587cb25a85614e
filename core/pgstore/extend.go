package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// Extend implements store.Store. All claims travel in one round trip and are extended in
// one transaction, which waits for no lock. Claims whose rows another transaction has
// locked at that moment are asked for again, each alone.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	valid := make([]int, 0, len(claims))
	for i := range claims {
		if answers[i].Err = usable("extend", &claims[i]); answers[i].Err == nil {
			valid = append(valid, i)
		}
	}
	if len(valid) > 1 {
		valid = s.extendAll(ctx, claims, valid, answers)
	}
	if len(valid) == 1 {
		answers[valid[0]].Err = s.extend(ctx, &claims[valid[0]])
		return answers
	}
	// Side by side, so that one that waits does not hold up the others; few, so
	// that they leave connections to others.
	tickets := make(chan struct{}, 4)
	done := make(chan struct{}, len(valid))
	for _, i := range valid {
		tickets <- struct{}{}
		go func() {
			defer func() { <-tickets; done <- struct{}{} }()
			answers[i].Err = s.extend(ctx, &claims[i])
		}()
	}
	for range valid {
		<-done
	}
	return answers
}

// extend extends one hold, for which it waits.
func (s *Store) extend(ctx context.Context, c *store.Claim) error {
	rows, err := s.do(ctx, "extend", call("extend").text(c.Key).text(c.Lease).num(millis(c.TTL)).end())
	if err != nil {
		return err
	}
	if len(rows) != 1 || len(rows[0]) != 1 {
		return confirmed("extend", "")
	}
	return confirmed("extend", string(rows[0][0]))
}

// extendAll extends those of claims that indexes tells, and returns those that
// are to be asked for again.
func (s *Store) extendAll(ctx context.Context, claims []store.Claim, indexes []int, answers []store.Extension) (again []int) {
	st := append(call("extend_all"), "ARRAY["...)
	for _, i := range indexes {
		st = st.text(claims[i].Key)
	}
	st = append(st, "],ARRAY["...)
	for _, i := range indexes {
		st = st.text(claims[i].Lease)
	}
	st = append(st, "],ARRAY["...)
	for _, i := range indexes {
		st = st.num(millis(claims[i].TTL))
	}
	rows, err := s.do(ctx, "extend", append(st, ']').end())
	var codes []string
	if err == nil {
		if len(rows) == 1 && len(rows[0]) == 1 {
			codes = strings.Split(strings.Trim(string(rows[0][0]), "{}"), ",")
		}
		if len(codes) != len(indexes) {
			err = errors.New("pgstore: extend: outcome unknown: answer cannot be read")
		}
	}
	for n, i := range indexes {
		switch {
		case err != nil:
			answers[i].Err = err
		case codes[n] == locked:
			again = append(again, i)
		default:
			answers[i].Err = confirmed("extend", codes[n])
		}
	}
	return again
}
