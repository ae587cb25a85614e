package adapters_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// db returns a client for the test's own requests.
func (s *stage) db() *redis.Client {
	s.t.Helper()
	if s.asks == nil {
		s.asks = testclient.Redis(s.t, s.server.Addr, func(o *redis.Options) { o.MaxRetries = 3 })
	}
	return s.asks
}

// keys returns the trial's keys with their fields.
func (s *stage) keys(db *redis.Client) map[string]map[string]string {
	s.t.Helper()
	ctx, all := context.Background(), map[string]map[string]string{}
	names, err := db.Keys(ctx, s.prefix+"*").Result()
	for _, name := range names {
		fields, failed := testclient.Fields(ctx, db, name)
		if err == nil {
			err = failed
		}
		if len(fields) > 0 { // the key may have been deleted since Keys
			all[name] = fields
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// freed waits until no key of the trial is held or waited for. A hold that was not lost
// must be gone long before its TTL has expired.
func (s *stage) freed() {
	s.t.Helper()
	testserver.Eventually(s.t, patience, "no key is held or waited for", func() bool { return !s.has("h:", "k:", "w") })
}

func (s *stage) held() bool {
	s.t.Helper()
	return s.has("h:", "k:")
}

// has reports whether a key of the trial has a field with one of these prefixes.
func (s *stage) has(prefixes ...string) bool {
	s.t.Helper()
	for _, fields := range s.keys(s.db()) {
		for field := range fields {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(field, p) }) {
				return true
			}
		}
	}
	return false
}

// remains returns the keys without an expiry, and the keys that should not be left at
// the end of the trial. A tombstone may stay for a TTL, and the record of a run for a
// day.
func (s *stage) remains() (endless, left []string) {
	s.t.Helper()
	db := s.db()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		endless, left = nil, nil
		for name, fields := range s.keys(db) {
			ttl, err := db.PTTL(context.Background(), name).Result()
			if err != nil {
				s.t.Fatal(err)
			}
			_, isRecord := fields["r"]
			most := s.ttl
			if isRecord && s.idempotent {
				most = 24 * time.Hour
			}
			var more []string
			for field := range fields {
				if !strings.HasPrefix(field, "d:") && field != "t" && !(isRecord && (field == "r" || field == "v")) {
					more = append(more, field)
				}
			}
			switch {
			case ttl == -1:
				endless = append(endless, name)
			case ttl > most, ttl > 0 && (len(more) > 0 || isRecord && !s.idempotent):
				left = append(left, fmt.Sprint(name, " for ", ttl, " with ", slices.Sorted(maps.Keys(fields))))
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return endless, left
		}
	}
}

// endless reads all keys of the trial while the handler runs. It fails the trial for each
// key without an expiry, and if there is no key.
func (s *stage) endless() {
	s.t.Helper()
	db := s.db()
	all := s.keys(db)
	for name := range all {
		if ttl := db.PTTL(context.Background(), name).Val(); ttl == -1 {
			s.wrong("keys without TTL", 1, "%s has no end of life while it is held", name)
		}
	}
	if len(all) == 0 {
		s.t.Error("nothing is held while the handler runs")
	}
}
