package storetest

import "github.com/lockkit/lockkit/core/store"

// checkCases test that CheckClaim accepts the claims that the store serves. The cases
// for missing features test that CheckClaim refuses their claims.
var checkCases = []testCase{
	{"serves exclusive claims", nil, func(e *env) { e.serves(e.exclusive()) }},
	{"serves waiting claims", nil, func(e *env) { e.serves(e.waiting()) }},
	{"serves readers", []Feature{Shared}, func(e *env) { e.serves(e.reader()) }},
	{"serves permits", []Feature{Permits}, func(e *env) { e.serves(e.permits(2, 3)) }},
	{"serves fair claims", []Feature{Fair}, func(e *env) { e.serves(e.fair()) }},
	{"serves joining claims", []Feature{Joining}, func(e *env) {
		e.serves(joining(e.exclusive(), e.exclusive()))
	}},
	{"serves claims with MinToken", []Feature{Fencing}, func(e *env) {
		c := e.exclusive()
		c.MinToken = 1
		e.serves(c)
	}},
	{"serves claims with Keep", []Feature{Keeping}, func(e *env) {
		e.serves(keeping(e.exclusive(), e.long))
	}},
	{"serves runs", []Feature{Records}, func(e *env) { e.serves(e.run("begun")) }},
	{"check takes nothing", nil, func(e *env) {
		e.serves(e.exclusive())
		e.isFree()
	}},
}

// serves calls CheckClaim if the store is a store.Checker, and fails the case if the
// store refuses c.
func (e *env) serves(c store.Claim) {
	e.Helper()
	k, ok := e.store.(store.Checker)
	if !ok {
		return
	}
	if err := k.CheckClaim(c); err != nil {
		e.Errorf("check: got %v, want nil", err)
	}
}
