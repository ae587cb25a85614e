// Package cluster tests the recipe with real clients of Kafka, on a cluster in memory.
// It is a separate module, because that cluster needs a later version of Go than the
// kit.
package cluster
