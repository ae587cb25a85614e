package storetest_test

import (
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// checkFlaws lists flaws of CheckClaim.
var checkFlaws = []flaw{
	{"tells that it serves no readers, and does", []string{
		"check/a store that tells serves readers",
	}, refusing(func(c store.Claim) bool { return c.Weight == 1 && c.Limit == store.All })},
	{"tells that it serves no permits, and does", []string{
		"check/a store that tells serves permits",
	}, refusing(func(c store.Claim) bool { return c.Limit < store.All })},
	{"tells that it serves no fair claims, and does", []string{
		"check/a store that tells serves fair claims",
	}, refusing(func(c store.Claim) bool { return c.Fair })},
	{"tells that it serves no claims that join, and does", []string{
		"check/a store that tells serves claims that join",
	}, refusing(func(c store.Claim) bool { return c.Via != "" })},
	{"tells that it gives no tokens, and does", []string{
		"check/a store that tells serves claims that need a token",
	}, refusing(func(c store.Claim) bool { return c.MinToken > 0 })},
	{"tells that it keeps nothing, and does", []string{
		"check/a store that tells serves claims that are kept",
	}, refusing(func(c store.Claim) bool { return c.Keep > 0 })},
	{"tells that it keeps no records, and does", []string{
		"check/a store that tells serves runs",
	}, refusing(func(c store.Claim) bool { return c.Record != nil })},
	{"tells that it serves nothing that waits, and does", []string{
		"check/a store that tells serves waiting claims",
	}, refusing(func(c store.Claim) bool { return c.Wait })},
	{"tells that it serves nothing, and does", []string{
		"check/a store that tells serves exclusive claims",
		"check/telling takes nothing",
	}, refusing(func(store.Claim) bool { return true })},
	{"takes what it is asked about", []string{
		"check/telling takes nothing",
	}, func(s *tampered) {
		s.check = func(c store.Claim) error {
			_, err := s.Store.Acquire(s.over, c)
			return err
		}
	}},
}

// refusing returns a flaw: CheckClaim refuses each claim for which kind returns true.
func refusing(kind func(c store.Claim) bool) func(s *tampered) {
	return func(s *tampered) {
		s.check = func(c store.Claim) error {
			if kind(c) {
				return fmt.Errorf("not here: %w", store.ErrUnsupported)
			}
			return nil
		}
	}
}
