package testclient

import "github.com/redis/go-redis/v9"

// OnePool makes pipelines use the same connection pool as other calls.
func OnePool(o *redis.Options) { o.PipelinePoolSize = -1 }

// Connections returns the number of the client's connections.
func Connections(c *redis.Client) int {
	s := c.PoolStats()
	n := s.TotalConns
	if s.PipelineStats != nil {
		n += s.PipelineStats.TotalConns
	}
	return int(n)
}
