package redisstore

import "github.com/lockkit/lockkit/core"

// Granted reads what acquire.lua answers.
func Granted(c core.Claim, v any) (core.Grant, error) {
	a, err := parse("acquire", v)
	if err != nil {
		return core.Grant{}, err
	}
	return granted(&c, a)
}

// Confirmed reads what extend.lua and release.lua answer.
func Confirmed(v any) error {
	a, err := parse("extend", v)
	if err != nil {
		return err
	}
	return confirmed("extend", a)
}

// Unfit reads what INFO answers.
func (s *Store) Unfit(text string) []string { return s.unfit(fields(text)) }
