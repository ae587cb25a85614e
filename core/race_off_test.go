//go:build !race

package core_test

const crowd = 10_000
