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

// Fields returns the stored fields of a lock of package redisstore by name, even if the
// lock is stored as a short string. It returns no fields if the lock does not exist.
func Fields(ctx context.Context, client redis.Cmdable, key string) (map[string]string, error) {
	if fields, err := client.HGetAll(ctx, key).Result(); err == nil {
		return leases(fields), nil // from a hash, or none
	}
	value, err := client.Get(ctx, key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ends, err := client.PExpireTime(ctx, key).Result()
	if err != nil && strings.Contains(err.Error(), "unknown command") {
		var ms int64
		ms, err = client.Eval(ctx, endOfKey, []string{key}).Int64()
		ends = time.Duration(ms) * time.Millisecond
	}
	if err != nil || ends < 0 { // the key has just expired
		return nil, err
	}
	return spread(value, ends)
}

// endOfKey is a script that returns the expiry of a key like PEXPIRETIME, in ms since
// 1970. It is for servers before 7.0, whose clock advances during a script.
const endOfKey = `
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
while true do
  local first, left = now(), redis.call('PTTL', KEYS[1])
  if left < 0 then
    return left
  elseif now() == first then
    return first + left
  end
end`

// leases returns the fields of a hash without the fields that can be computed from
// other fields. It returns nil if no fields remain, because then the lock does not
// exist.
func leases(fields map[string]string) map[string]string {
	maps.DeleteFunc(fields, func(name, _ string) bool {
		return name == "n" || strings.HasPrefix(name, "o:")
	})
	if len(fields) == 0 {
		return nil
	}
	return fields
}

// spread returns the fields that a string of package redisstore stands for. ends is the
// expiry of the key, as a time since 1970.
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

// SetField sets one of the fields that Fields returns.
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
