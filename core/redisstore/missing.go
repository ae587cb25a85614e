package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// unnamed is the error of a server before 7.2 for a right that is missing inside a script.
const unnamed = "The user executing the script can't"

// withRight adds the missing rights to an error of such a server. It tries each command
// with arguments that the server refuses or that change nothing: rights are checked first.
func (s *Store) withRight(ctx context.Context, err error) error {
	if err == nil || !strings.Contains(err.Error(), unnamed) {
		return err
	}
	key := s.prefix + "{rights:" + rand.Text() + "}"
	trials := [][]any{
		{"get", key}, {"pttl", key}, {"hget", key, "f"}, {"hlen", key}, {"hgetall", key}, {"hdel", key, "f"}, {"del", key},
		{"pexpire", key, 1}, {"set", key, "", "no such option"}, {"hset", key, "f", "", "no value"}, {"time"},
		{"publish", s.prefix + "wake:nobody", ""},
	}
	lacks, _ := away(ctx, func(ctx context.Context) (lacks []string, _ error) {
		cmds, _ := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, words := range trials {
				p.Do(ctx, words...)
			}
			return nil
		})
		for _, cmd := range cmds {
			if isReply(cmd.Err(), "NOPERM") {
				lacks = append(lacks, "+"+cmd.Name())
			}
		}
		return lacks, nil
	})
	if len(lacks) == 0 {
		return err
	}
	return fmt.Errorf("the user lacks %s: %w", strings.Join(lacks, " "), err) // first, where the text is cut
}
