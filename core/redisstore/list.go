package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

const (
	scanCount = 1000 // keys of one step, which blocks the server for about a millisecond
	scanSteps = 50   // the maximum number of steps in one call of List
	scanPause = time.Millisecond

	viewsAtOnce = 128 // the maximum number of keys in one pipeline
)

// List implements store.Inspector by SCAN. It walks over all keys of the server's
// database, including keys that are not locks. One call covers at most about 50,000
// keys, in steps of at most about 1,000 keys with pauses between them. In a Cluster,
// List walks over one master after the other. It leaves out a key whose name looks like
// a lock's name but whose value was not written by a Store.
//
// If the last step finds more keys than needed, the page has more entries than the
// parameter most. next is a cursor, in a Cluster with the address of a master. It
// contains no key.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	const op, name = "list", "redisstore: list"
	if err := inspection.CheckPage(name, most); err != nil {
		return nil, "", err
	}
	address, cursor, err := parseCursor(after)
	if err != nil {
		return nil, "", err
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, "", s.unanswered(ctx, op, err)
	}
	at := slices.IndexFunc(masters, func(m master) bool { return m.address >= address })
	if at < 0 {
		return nil, "", nil // the master, and all masters after it, are gone
	}
	if masters[at].address != address {
		cursor = 0
	}
	count := int64(max(10, min(most, scanCount)))
	for range scanSteps {
		m := masters[at]
		keys, to, err := s.scan(ctx, m.client, cursor, count)
		if err == nil {
			page, err = s.views(ctx, page, keys)
		}
		if err != nil {
			return nil, "", s.unanswered(ctx, op, err)
		}
		if cursor = to; cursor == 0 {
			if at++; at == len(masters) {
				return page, "", nil
			}
		}
		if len(page) >= most {
			break
		}
		count = min(2*count, scanCount)
		if err := clock.Sleep(ctx, scanPause); err != nil {
			return nil, "", s.unanswered(ctx, op, err)
		}
	}
	return page, strings.TrimSpace(masters[at].address + " " + strconv.FormatUint(cursor, 10)), nil
}

func parseCursor(after string) (address string, cursor uint64, err error) {
	if after == "" {
		return "", 0, nil
	}
	digits := after
	if i := strings.LastIndexByte(after, ' '); i >= 0 {
		address, digits = after[:i], after[i+1:]
	}
	if cursor, err = strconv.ParseUint(digits, 10, 64); err != nil {
		return "", 0, fmt.Errorf("redisstore: list: there is no such page: %w", store.ErrInvalid)
	}
	return address, cursor, nil
}

type scanner interface {
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
}

type master struct {
	address string // "" without a Cluster
	client  scanner
}

// masters returns the servers whose keys are listed, sorted by their addresses.
func (s *Store) masters(ctx context.Context) ([]master, error) {
	if s.cluster == nil {
		return []master{{client: s.client}}, nil
	}
	return away(ctx, func(ctx context.Context) ([]master, error) {
		var mu sync.Mutex
		var all []master
		err := s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master{c.Options().Addr, c})
			return nil
		})
		slices.SortFunc(all, func(a, b master) int { return cmp.Compare(a.address, b.address) })
		return all, err
	})
}

// scan makes one step, and returns the keys of the locks that it found.
func (s *Store) scan(ctx context.Context, client scanner, cursor uint64, count int64) (keys []string, next uint64, err error) {
	type step struct {
		names []string
		next  uint64
	}
	match := globs.Replace(s.prefix) + "*"
	if !s.foreign() {
		match = globs.Replace(s.prefix) + "{*}"
	}
	got, err := away(ctx, func(ctx context.Context) (step, error) {
		names, next, err := client.Scan(ctx, cursor, match, count).Result()
		return step{names, next}, err
	})
	for _, n := range got.names {
		if key, ok := s.keyOf(n); ok {
			keys = append(keys, key)
		}
	}
	return keys, got.next, err
}

// globs escapes the characters of a prefix that have a meaning in a SCAN pattern.
var globs = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// views adds the live entries of keys to page. It reads them in pipelines.
func (s *Store) views(ctx context.Context, page []store.State, keys []string) ([]store.State, error) {
	for some := range slices.Chunk(keys, viewsAtOnce) {
		items := make([]pipeline.Item, len(some))
		for i, key := range some {
			items[i] = pipeline.Item{Key: s.key(key), Text: strconv.Itoa(maxOwner)}
		}
		bound, cancel := pipeline.Bounded(ctx)
		replies := s.pipeline.DoAll(bound, s.script.show, "show", items)
		cancel()
		for i, key := range some {
			v, ok, err := s.answered(key, replies[i])
			if err != nil {
				return nil, s.withRight(ctx, err)
			}
			if ok && !v.empty() {
				page = append(page, v.state)
			}
		}
	}
	return page, nil
}

// answered reads the answer about one key. It returns false for a value that no Store
// wrote.
func (s *Store) answered(key string, r pipeline.Result) (v view, ok bool, err error) {
	// Servers before 7.0 add text before an error inside a script.
	if errors.As(r.Err, new(redis.Error)) && strings.Contains(r.Err.Error(), "WRONGTYPE") {
		return view{}, false, nil
	}
	if r.Err != nil {
		return view{}, false, r.Err
	}
	a, err := parse("list", r.Reply)
	if err != nil {
		return view{}, false, nil
	}
	v, ok = s.readView(key, a)
	return v, ok, nil
}
