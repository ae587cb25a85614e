package testclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Fields returns what is stored of a lock of package redisstore, by the names of
// the hash's fields, also while it is a string. It is empty if there is nothing.
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
		return Spread(value)
	}
}

// Spread returns the fields that a string of package redisstore stands for.
func Spread(value string) (map[string]string, error) {
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
	case len(words) == 4:
		fields["h:"+words[3]] = strings.Join(words[:3], " ")
	case len(words) == 6 && words[5] == "":
		fields["h:"+words[3]], fields["t"] = strings.Join(words[:3], " ")+" 2147483647", words[4]
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
