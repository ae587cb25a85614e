// Package redisstore keeps the locks of package core in Redis or Valkey, on a
// single server, behind Sentinel, or in a Cluster.
package redisstore
