package testclient

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fields returns what is stored of a lock of package redisstore, by the names of
// the hash's fields, also while it is a string. It is empty if there is nothing. It
// needs Redis 7.
func Fields(ctx context.Context, client redis.Cmdable, key string) (map[string]string, error) {
	for {
		fields, err := client.HGetAll(ctx, key).Result()
		if !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return fields, err
		}
		value, err := client.Get(ctx, key).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return nil, nil
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			continue // it has become a hash meanwhile
		case err != nil:
			return nil, err
		}
		ends, err := client.PExpireTime(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		if ends > 0 { // else it has just gone
			return spread(value, ends)
		}
	}
}

// spread returns the fields that a string of package redisstore stands for, whose key
// ends at a time since 1970.
func spread(value string, ends time.Duration) (map[string]string, error) {
	fields := make(map[string]string)
	switch words := strings.Split(value, " "); {
	case strings.HasPrefix(value, "f\t"):
		head, long, has := strings.Cut(value, "\tv ")
		if has {
			fields["v"] = long
		}
		for _, field := range strings.Split(head, "\t")[1:] {
			name, text, _ := strings.Cut(field, " ")
			fields[name] = text
		}
	case len(words) == 3:
		ms, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("testclient: the key is %q, which is no lock", value)
		}
		began := ends.Milliseconds() - ms
		fields["h:"+words[2]] = fmt.Sprintf("%d000 %d %s 2147483647", began, ms, words[1])
		fields["t"] = fmt.Sprintf("%d999", began+1)
	default:
		return nil, fmt.Errorf("testclient: the key is %q, which is no lock", value)
	}
	return fields, nil
}

// SetField sets one of them.
func SetField(ctx context.Context, client redis.Cmdable, key, name, value string) error {
	fields, err := Fields(ctx, client, key)
	if err != nil {
		return err
	}
	if client.Type(ctx, key).Val() != "string" {
		return client.HSet(ctx, key, name, value).Err()
	}
	fields[name] = value
	var all, last string
	for name, value := range fields {
		if field := "\t" + name + " " + value; name == "v" {
			last = field
		} else {
			all += field
		}
	}
	return client.Set(ctx, key, "f"+all+last, redis.KeepTTL).Err()
}
