// Package casstore keeps locks in any place that has compare-and-set.
package casstore
