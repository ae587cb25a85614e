//go:build !newest

package testclient

import "github.com/redis/go-redis/v9"

// OnePool has pipelines use the pool of other calls, as they do with the least go-redis.
func OnePool(*redis.Options) {}

// Connections returns how many connections the client has.
func Connections(c *redis.Client) int { return int(c.PoolStats().TotalConns) }
