package testclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Fields returns the stored fields of a lock of package redisstore, by their names,
// even where it is a short string. It returns no fields if there is no lock. It needs
// Redis 7.
func Fields(ctx context.Context, client redis.Cmdable, key string) (map[string]string, error) {
	if fields, err := client.HGetAll(ctx, key).Result(); err == nil {
		return leases(fields), nil // of a hash, or none
	}
	value, err := client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ends, err := client.PExpireTime(ctx, key).Result()
	if err != nil || ends < 0 { // it has just gone
		return nil, err
	}
	return spread(value, ends)
}

// leases returns the fields of a hash without those that follow from others. There is no key
// if there are none.
func leases(fields map[string]string) map[string]string {
	maps.DeleteFunc(fields, func(name, _ string) bool {
		return name == "n" || strings.HasPrefix(name, "o:")
	})
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// spread returns the fields for which a string of package redisstore stands. The key
// expires at ends, a time since 1970.
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

// SetField sets one of these fields.
func SetField(ctx context.Context, client redis.Cmdable, key, name, value string) error {
	fields, err := Fields(ctx, client, key)
	if err != nil {
		return err
	}
	if fields == nil {
		return fmt.Errorf("testclient: there is no key %q", key)
	}
	if client.Type(ctx, key).Val() == "hash" {
		return client.HSet(ctx, key, name, value).Err()
	}
	fields[name] = value
	var first, all, last string
	for name, value := range fields {
		switch field := "\t" + name + " " + value; name {
		case "r":
			first = field
		case "v":
			last = field
		default:
			all += field
		}
	}
	return client.Set(ctx, key, "f"+first+all+last, redis.KeepTTL).Err()
}
