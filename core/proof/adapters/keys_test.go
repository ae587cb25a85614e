package adapters_test

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

// db is a client for the test's own questions.
func (s *stage) db() *redis.Client {
	s.t.Helper()
	if s.asks == nil {
		s.asks = redistest.Client(s.t, s.server.Addr, func(o *redis.Options) { o.MaxRetries = 3 })
	}
	return s.asks
}

// keys are those of the trial, with their fields.
func (s *stage) keys(db *redis.Client) map[string]map[string]string {
	s.t.Helper()
	ctx, all := context.Background(), map[string]map[string]string{}
	names, err := db.Keys(ctx, s.prefix+"*").Result()
	for _, name := range names {
		fields, failed := db.HGetAll(ctx, name).Result()
		if err == nil {
			err = failed
		}
		if len(fields) > 0 { // it may be gone meanwhile
			all[name] = fields
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// freed waits until nobody holds a key of the trial, or waits for one. That is
// long before the TTL of what was not lost.
func (s *stage) freed() {
	s.t.Helper()
	db := s.db()
	redistest.Eventually(s.t, patience, "no key is held", func() bool {
		for _, fields := range s.keys(db) {
			for field := range fields {
				if strings.HasPrefix(field, "h:") || strings.HasPrefix(field, "k:") || field == "w" {
					return false
				}
			}
		}
		return true
	})
}

// remains are the keys that have no end of life, and those that are there when
// everything is over and the short TTL has passed. Records of runs stay for as
// long as they are to be retained, which is a day.
func (s *stage) remains() (endless, left []string) {
	s.t.Helper()
	db, end := s.db(), time.Now().Add(patience)
	for {
		endless, left = nil, nil
		for name, fields := range s.keys(db) {
			ttl, err := db.PTTL(context.Background(), name).Result()
			if err != nil {
				s.t.Fatal(err)
			}
			_, isRecord := fields["r"]
			switch {
			case ttl == -1:
				endless = append(endless, name)
			case ttl > 0 && !(isRecord && s.idempotent && ttl <= 24*time.Hour):
				left = append(left, name)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return endless, left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// endless notes keys without an end of life while they are held.
func (s *stage) endless() {
	s.t.Helper()
	db := s.db()
	all := s.keys(db)
	for name := range all {
		if ttl := db.PTTL(context.Background(), name).Val(); ttl == -1 {
			s.t.Errorf("%s has no end of life while it is held", name)
		}
	}
	if len(all) == 0 {
		s.t.Error("nothing is held while the handler runs")
	}
}
