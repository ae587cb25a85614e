package storetest_test

import (
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// checkFlaws lists flaws of CheckClaim.
var checkFlaws = []flaw{
	{"denies readers", []string{
		"check/serves readers",
	}, refusing(func(c store.Claim) bool { return c.Weight == 1 && c.Limit == store.All })},
	{"denies permits", []string{
		"check/serves permits",
	}, refusing(func(c store.Claim) bool { return c.Limit < store.All })},
	{"denies fair claims", []string{
		"check/serves fair claims",
	}, refusing(func(c store.Claim) bool { return c.Fair })},
	{"denies joining claims", []string{
		"check/serves joining claims",
	}, refusing(func(c store.Claim) bool { return c.Via != "" })},
	{"denies tokens", []string{
		"check/serves claims with MinToken",
	}, refusing(func(c store.Claim) bool { return c.MinToken > 0 })},
	{"denies Keep", []string{
		"check/serves claims with Keep",
	}, refusing(func(c store.Claim) bool { return c.Keep > 0 })},
	{"denies records", []string{
		"check/serves runs",
	}, refusing(func(c store.Claim) bool { return c.Record != nil })},
	{"denies waiting claims", []string{
		"check/serves waiting claims",
	}, refusing(func(c store.Claim) bool { return c.Wait })},
	{"denies every claim", []string{
		"check/serves exclusive claims",
		"check/check takes nothing",
	}, refusing(func(store.Claim) bool { return true })},
	{"acquires in CheckClaim", []string{
		"check/check takes nothing",
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
