// Package cluster tests the recipe with real clients of Kafka, on a cluster in memory. It is a
// module of its own, since that cluster needs a later Go than the kit.
package cluster
