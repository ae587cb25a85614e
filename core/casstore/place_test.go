package casstore_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// memory is a place in memory for any number of Stores. It is a Usual, Watcher, Lister
// and Sweeper.
type memory struct {
	mu      sync.Mutex
	entries map[string]casstore.Entry
	floor   uint64
	watches map[watched][]chan struct{}
	skew    time.Duration // the time by which the place's clock is ahead of the real clock

	// doomed counts the items of all deletes, and deleted the deleted entries.
	loads, saves, lost, usual, extends, deletes, doomed, deleted int
}

type watched struct{ key, lease string }

var (
	_ casstore.Usual   = (*memory)(nil)
	_ casstore.Watcher = (*memory)(nil)
	_ casstore.Lister  = (*memory)(nil)
	_ casstore.Sweeper = (*memory)(nil)
)

func newMemory() *memory {
	return &memory{entries: make(map[string]casstore.Entry), watches: make(map[watched][]chan struct{})}
}

func (m *memory) now() time.Time { return time.UnixMicro(time.Now().Add(m.skew).UnixMicro()) }

func (m *memory) Load(_ context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loads++
	return m.load(key, w.Value), nil
}

func (m *memory) load(key string, value bool) casstore.Entry {
	e := m.entries[key]
	e.Now = m.now()
	if e.Version == 0 {
		e.Floor = m.floor
	}
	if !value {
		e.Value = nil
	}
	return e
}

func (m *memory) Save(_ context.Context, key string, old, e casstore.Entry) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves++
	now, passed := m.entries[key], m.now().Sub(old.Now)
	if now.Version != old.Version || old.Version == 0 && m.floor != old.Floor || passed < 0 || passed > time.Second {
		m.lost++
		return false, nil
	}
	if e.KeepValue {
		e.Value = now.Value
	}
	for _, lease := range e.Wake {
		for _, ch := range m.watches[watched{key, lease}] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
	e.Wake, e.KeepValue = nil, false
	m.entries[key] = e
	return true, nil
}

func (m *memory) Take(_ context.Context, c store.Claim, version int64) (uint64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usual++
	e, now := m.load(c.Key, false), m.now()
	if e.State != nil || e.Alone.Written.After(now) || e.Alone.Until.After(now) {
		return 0, false, nil
	}
	token := max(uint64(now.UnixMicro()), e.Alone.Token+store.TokenStep, e.Floor+store.TokenStep, c.MinToken)
	until := now.Add(c.TTL)
	m.entries[c.Key] = casstore.Entry{Version: version, Due: until, Alone: casstore.Alone{
		Token: token, Lease: c.Lease, Owner: c.Owner, Since: now, Until: until, Written: now,
	}}
	return token, true, nil
}

// held reports whether e is the usual hold of c.
func held(e casstore.Entry, c store.Claim, now time.Time) bool {
	return e.State == nil && e.Alone.Lease == c.Lease && !e.Alone.Written.After(now) && e.Alone.Until.After(now)
}

func (m *memory) Give(_ context.Context, c store.Claim, version int64) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usual++
	e, now := m.entries[c.Key], m.now()
	if !held(e, c, now) {
		return false, nil
	}
	e.Version = version
	e.Alone = casstore.Alone{Token: e.Alone.Token, Until: now, Written: now}
	m.entries[c.Key] = e
	return true, nil
}

func (m *memory) Extend(_ context.Context, claims []store.Claim, version int64) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.extends++
	done := make([]bool, len(claims))
	for i, c := range claims {
		e, now := m.entries[c.Key], m.now()
		if done[i] = held(e, c, now); !done[i] {
			continue
		}
		if until := now.Add(c.TTL); until.After(e.Alone.Until) {
			e.Alone.Until, e.Due = until, until
		}
		e.Version, e.Alone.Written = version, now
		m.entries[c.Key] = e
	}
	return done, nil
}

func (m *memory) Watch(ctx context.Context, key, lease string) (<-chan struct{}, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ch := watched{key, lease}, make(chan struct{}, 1)
	m.watches[at] = append(m.watches[at], ch)
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watches[at] = slices.DeleteFunc(m.watches[at], func(other chan struct{}) bool { return other == ch })
	})
	return ch, nil
}

// entry and put let tests read and change an entry directly, for example during a
// sweep.
func (m *memory) entry(key string) casstore.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key]
}

func (m *memory) put(key string, e casstore.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries[key] = e
}

// items returns the entries for which the function some returns true, sorted by key. The
// parameter most is their maximum number.
func (m *memory) items(most int, some func(key string, e casstore.Entry) bool) (items []casstore.Item) {
	var keys []string
	for key, e := range m.entries {
		if some(key, e) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys[:min(most, len(keys))] {
		items = append(items, casstore.Item{Key: key, Entry: m.load(key, false)})
	}
	return items
}

func (m *memory) List(_ context.Context, after string, most int) ([]casstore.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.items(most, func(key string, _ casstore.Entry) bool { return key > after }), nil
}

func (m *memory) Dead(_ context.Context, most int) ([]casstore.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	return m.items(most, func(_ string, e casstore.Entry) bool { return !e.Due.After(now) }), nil
}

func (m *memory) Raise(_ context.Context, token uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = max(m.floor, token)
	return nil
}

func (m *memory) Delete(_ context.Context, items []casstore.Item) (deleted int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deletes++
	m.doomed += len(items)
	for _, i := range items {
		if m.entries[i.Key].Version == i.Version {
			deleted++
			delete(m.entries, i.Key)
		}
	}
	m.deleted += deleted
	return deleted, nil
}

// bare is a place with only Load and Save.
type bare struct{ m *memory }

func (b bare) Load(ctx context.Context, key string, _ casstore.Want) (casstore.Entry, error) {
	e, err := b.m.Load(ctx, key, casstore.Want{Value: true})
	e.Alone = casstore.Alone{}
	return e, err
}

func (b bare) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	return b.m.Save(ctx, key, old, e)
}
