package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Check reports whether the server, or every master of a Cluster, is fit to store
// locks. It also tries the Store's operations on keys that expire within seconds.
// Check returns nil, or one error that lists the faults and their remedies:
//
//   - The server is a replica, is loading its data, or is older than 6.2.
//   - The server may evict keys when memory is short, so that a lock could vanish.
//   - The server refuses writes because it cannot save, or it saves nothing, so that a
//     restart would forget all locks. Check does not notice the latter if the user may
//     not use CONFIG.
//   - The clock of the server, or of a replica in a Cluster, differs from this
//     machine's clock by more than two seconds. After a failover, leases would expire
//     too early or too late by that much.
//   - Connections of a *redis.Client lead to several servers, as behind a proxy, without
//     WithProxy, WithPlainKeys and WithRedisson.
//   - Fewer replicas are connected than WithReplicas requires.
//   - The server is a node of a Cluster but the client is not a Cluster client.
//   - The server is full, lacks replicas that it requires, or has renamed a command.
//   - The user lacks a required right.
//
// Check needs the right to use INFO, which locks do not need.
// The error matches store.ErrUnavailable if the server did not answer.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*pipeline.Limit, pipeline.ErrNoAnswer)
	defer cancel()
	faults, err := pipeline.Detached(ctx, func() ([]string, error) { return s.inspect(ctx) })
	if err != nil {
		return s.unanswered(ctx, "check", err)
	}
	all := make([]error, 0, len(faults)+1)
	for _, f := range faults {
		all = append(all, fmt.Errorf("redisstore: check: %s", f))
	}
	return errors.Join(append(all, s.try(ctx))...)
}

// inspect returns the faults of the servers.
func (s *Store) inspect(ctx context.Context) ([]string, error) {
	if s.cluster == nil {
		return s.judge(ctx, s.client)
	}
	var mu sync.Mutex
	var all []string
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		faults, err := s.judge(ctx, master)
		mu.Lock()
		defer mu.Unlock()
		for _, f := range faults {
			all = append(all, master.Options().Addr+": "+f)
		}
		return err
	})
	return append(all, s.skews(ctx)...), err
}

func (s *Store) judge(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	text, err := client.Info(ctx).Result()
	switch {
	case isReply(err, "NOPERM"):
		return []string{"the user may not use INFO, so nothing is known of the server: allow +info"}, nil
	case err != nil && strings.Contains(err.Error(), "unknown command"):
		return []string{"the server has no INFO under this name, so nothing is known of it: undo rename-command"}, nil
	}
	if err != nil {
		return nil, err
	}
	info := fields(text)
	faults := append(s.unfit(info), skew(ctx, client)...)
	if single, ok := client.(*redis.Client); ok && s.cluster == nil && !s.foreign() && !s.proxied {
		faults = append(faults, several(ctx, single, info["run_id"])...)
	}
	if info["aof_enabled"] == "0" {
		// Without the right to use CONFIG, the setting is not checked.
		if save, err := client.ConfigGet(ctx, "save").Result(); err == nil && save["save"] == "" {
			faults = append(faults, "nothing is saved to disk, a restart forgets every lock: set appendonly yes")
		}
	}
	return faults, nil
}

// probes is the number of connections that several opens.
const probes = 4

// several returns a fault if a new connection leads to a server with another run ID.
func several(ctx context.Context, client *redis.Client, id string) []string {
	options := pipeline.SecondOptions(client)
	options.PoolSize, options.MinIdleConns = 1, 0
	for range probes {
		other := redis.NewClient(options)
		text, err := other.Info(ctx, "server").Result()
		_ = other.Close()
		if now := fields(text)["run_id"]; err == nil && now != id {
			return []string{"connections lead to several servers: give New WithProxy (lockkit: -proxy) if a proxy spreads keys over them, else connect to one server"}
		}
	}
	return nil
}

func fields(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// unfit returns the faults that INFO's reply shows.
func (s *Store) unfit(info map[string]string) []string {
	var faults []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	version := info["redis_version"]
	add(older(version, 6, 2), "version %s is older than 6.2: upgrade the server", version)
	role := info["role"]
	add(role != "" && role != "master", "the server is a %s: connect to the master", role)
	add(info["loading"] == "1", "the server is loading its data: wait until it is done")
	policy := info["maxmemory_policy"]
	add(policy != "" && policy != "noeviction",
		"maxmemory-policy %s may evict a held lock: set maxmemory-policy noeviction", policy)
	add(info["aof_last_write_status"] == "err" || info["rdb_last_bgsave_status"] == "err",
		"the server fails to save and may refuse writes: see its log")
	if s.acks {
		online := 0
		for name, value := range info {
			if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online") {
				online++
			}
		}
		add(online < s.replicas, "%d replicas are connected, WithReplicas asks for %d", online, s.replicas)
	}
	return faults
}

// older reports whether version is known and below major.minor.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}

// try runs the Store's operations on new keys.
func (s *Store) try(ctx context.Context) error {
	claim := store.Claim{
		Key: "check:" + rand.Text(), Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: pipeline.Limit,
	}
	if !s.foreign() {
		// One claim is made by a SET, the next one by a script.
		alone := claim
		alone.Key = "check:" + rand.Text()
		if err := s.tryHold(ctx, alone); err != nil {
			return s.advise(err)
		}
		if err := s.Release(ctx, alone); err != nil {
			return s.advise(err)
		}
		// These operations send a PEXPIRE only if memory is short. They make no hash,
		// which needs nine leases. So lacks tries the other commands.
		if lacks := s.lacks(ctx); lacks != "" {
			return s.advise(errors.New(lacks))
		}
		claim.MinToken = anyToken + 1
	}
	waits := claim
	waits.Owner, waits.Lease, waits.Wait = rand.Text(), rand.Text(), true
	if s.redisson {
		claim.MinToken = anyToken
		defer func() { // otherwise the counter would stay forever
			_, _ = away(ctx, func(ctx context.Context) (bool, error) {
				return s.client.PExpire(ctx, s.counterOf(claim.Key), time.Second).Result()
			})
		}()
	}
	if err := s.tryHold(ctx, claim); err != nil {
		return s.advise(err)
	}
	if s.plain {
		return s.advise(s.Release(ctx, claim))
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	woken, watchErr := s.Watch(watching, waits)
	if _, err := s.Acquire(ctx, waits); !errors.Is(err, store.ErrBusy) {
		return s.advise(fmt.Errorf("a second claim of a held key was answered: %w", err))
	}
	if err := s.Release(ctx, claim); err != nil {
		return s.advise(err)
	}
	if watchErr != nil {
		return s.advise(watchErr)
	}
	timer := time.NewTimer(pipeline.Limit)
	defer timer.Stop()
	select {
	case _, ok := <-woken:
		if !ok {
			watchErr = errors.New("the subscription broke")
		}
	case <-timer.C:
		watchErr = errors.New("no wake-up arrived")
	case <-ctx.Done():
		watchErr = pipeline.Cause(ctx)
	}
	return errors.Join(s.advise(watchErr), s.advise(s.Release(ctx, waits)))
}

func (s *Store) tryHold(ctx context.Context, c store.Claim) error {
	if _, err := s.Acquire(ctx, c); err != nil {
		return err
	}
	c.TTL *= 2 // otherwise there might be nothing to extend yet
	return s.Extend(ctx, []store.Claim{c})[0].Err
}

// advise adds the likely reason to an error of try. It returns nil for an error matching
// store.ErrLost, because the server has answered.
func (s *Store) advise(err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrLost):
		return nil
	case pipeline.ClassOf(err).Hint != "":
		return fmt.Errorf("redisstore: check: %w (%s)", err, pipeline.ClassOf(err).Hint)
	case s.redisson:
		return fmt.Errorf("redisstore: check: %w (it needs the rights %s on the keys %s*, redisson_lock_token:* and redisson_lock_queue:*, and the channels redisson_lock__channel:*)",
			err, redissonRights+s.clusterRights(), s.prefix)
	case s.plain:
		return fmt.Errorf("redisstore: check: %w (it needs the rights %s on the keys %s*)", err, plainRights, s.prefix)
	}
	return fmt.Errorf("redisstore: check: %w (it needs the rights %s on the keys %s* and the channels %swake:*)",
		err, rights+s.clusterRights(), s.prefix, s.prefix)
}

// clusterRights returns the additional rights that the client needs in a Cluster.
func (s *Store) clusterRights() string {
	switch {
	case s.cluster == nil:
		return ""
	case s.redisson:
		return clusterRights + " +spublish +ssubscribe +sunsubscribe"
	}
	return clusterRights
}

// The required rights of a user, in the syntax of ACL SETUSER.
const (
	rights = "+eval +evalsha +mget +set +hmget +hgetall +hset +hdel +del +time +pexpire +pttl" +
		" +publish +subscribe +unsubscribe +pubsub|numsub +ping"
	clusterRights  = " +cluster|slots +command +asking"
	plainRights    = "+eval +evalsha +get +set +del +pexpire +pttl"
	redissonRights = "+eval +evalsha +hget +hgetall +hlen +hset +hdel +lindex +get +set +del +time +pexpire +pttl" +
		" +publish +subscribe +unsubscribe +ping"
)
