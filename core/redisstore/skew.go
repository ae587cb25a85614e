package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// maxSkew is far above the differences between clocks that are synchronized over a
// network, and above the time that a busy server takes to answer.
const maxSkew = 2 * time.Second

// skew returns a fault if a server's clock certainly differs from this machine's clock
// by more than maxSkew. It returns none if the server does not report its time. It
// cannot know which of the two clocks is wrong. The Store itself never compares the two
// clocks, because only the servers' clocks have to agree.
func skew(ctx context.Context, client redis.Cmdable) []string {
	before := time.Now()
	now, err := client.Time(ctx).Result()
	if err != nil {
		return nil // the right is missing or the server is down, which other faults report
	}
	took := time.Since(before)
	ahead := now.Sub(before.Add(took / 2).Round(0))
	if ahead.Abs() <= maxSkew+took/2 {
		return nil
	}
	than := "ahead of"
	if ahead < 0 {
		than = "behind"
	}
	return []string{fmt.Sprintf("its clock is %s %s this machine's, and leases change by as much when a server with another clock takes over: "+
		"keep all clocks right (NTP)", words.Duration(ahead.Abs().Round(time.Second)), than)}
}

// skews compares the clocks of a Cluster's replicas with this machine's clock. It leaves
// out a replica that does not answer within a second.
func (s *Store) skews(ctx context.Context) []string {
	ctx, cancel := context.WithTimeoutCause(ctx, pipeline.Limit/2, pipeline.ErrNoAnswer)
	defer cancel()
	var mu sync.Mutex
	var all []string
	_, _ = pipeline.Detached(ctx, func() (struct{}, error) {
		return struct{}{}, s.cluster.ForEachSlave(ctx, func(ctx context.Context, replica *redis.Client) error {
			faults := skew(ctx, replica)
			mu.Lock()
			defer mu.Unlock()
			for _, f := range faults {
				all = append(all, replica.Options().Addr+": "+f)
			}
			return nil
		})
	})
	mu.Lock()
	defer mu.Unlock()
	return append([]string(nil), all...)
}
