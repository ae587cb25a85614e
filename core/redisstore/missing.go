package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// noPermText is the error of servers before 7.2 for a missing right inside a script.
const noPermText = "The user executing the script can't"

// withRight adds the missing rights to err, if err reports a missing right inside a
// script.
func (s *Store) withRight(ctx context.Context, err error) error {
	if err == nil || !strings.Contains(err.Error(), noPermText) {
		return err
	}
	if lacks := s.lacks(ctx); lacks != "" {
		return fmt.Errorf("%s: %w", lacks, err) // first, because long texts are cut at the end
	}
	return err
}

// lacks returns the rights for commands in scripts that the user lacks, or "". It tries
// each command with arguments that the server refuses or that change nothing. Servers
// check rights before arguments.
func (s *Store) lacks(ctx context.Context) string {
	key, needs := s.prefix+"{rights:"+rand.Text()+"}", rights
	switch {
	case s.redisson:
		needs = redissonRights
	case s.plain:
		needs = plainRights
	}
	names, _ := away(ctx, func(ctx context.Context) (names []string, _ error) {
		cmds, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, words := range [][]any{
				{"get", key}, {"mget", key}, {"hget", key, "f"}, {"hmget", key, "f"}, {"hlen", key}, {"hgetall", key},
				{"hdel", key, "f"}, {"pttl", key}, {"del", key},
				{"pexpire", key, 1}, {"set", key, "", "no such option"}, {"hset", key, "f", "", "no value"}, {"time"},
				{"publish", s.prefix + "wake:nobody", ""},
			} {
				if strings.Contains(needs+" ", fmt.Sprintf("+%s ", words[0])) {
					p.Do(ctx, words...)
				}
			}
			return nil
		})
		for _, cmd := range cmds {
			// A user may be limited to other keys and channels.
			if isReply(cmd.Err(), "NOPERM") && strings.Contains(cmd.Err().Error(), "permissions to run the") {
				names = append(names, "+"+cmd.Name())
			}
		}
		return names, nil
	})
	if len(names) == 0 {
		return ""
	}
	return "the user lacks " + strings.Join(names, " ")
}
