package testserver

import (
	"slices"
	"testing"
)

// Migration is the move of a slot of a Cluster from one master to another. During the
// move the source serves the keys that it still has, and sends clients to the target
// for all others.
type Migration struct {
	t        testing.TB
	cluster  *Cluster
	slot     int
	from, to *Redis
}

// Migrate moves slot and all its keys to another master.
func (c *Cluster) Migrate(slot int, to *Redis) {
	c.t.Helper()
	c.BeginMigration(slot, to).Finish()
}

// BeginMigration starts the move of slot to another master. Keys move by MoveKeys and
// Finish.
func (c *Cluster) BeginMigration(slot int, to *Redis) *Migration {
	c.t.Helper()
	m := &Migration{t: c.t, cluster: c, slot: slot, from: c.Master(slot), to: to}
	if m.from == to {
		c.t.Fatal("testserver: the slot is there already")
	}
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", nodeID(m.from))
	m.from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", nodeID(to))
	return m
}

// MoveKeys moves n of the keys that have not moved yet, or all of them if they are
// fewer, and returns the number that it found.
func (m *Migration) MoveKeys(n int) int {
	m.t.Helper()
	keys := m.from.Do("CLUSTER", "GETKEYSINSLOT", m.slot, n).([]any)
	if len(keys) > 0 {
		m.from.Do(append([]any{"MIGRATE", "127.0.0.1", m.to.Port(), "", 0, 10000, "KEYS"}, keys...)...)
	}
	return len(keys)
}

// Finish moves the rest of the keys and informs the whole cluster, the new master
// first, in the order in which slots are to be handed over.
func (m *Migration) Finish() {
	m.t.Helper()
	for m.MoveKeys(10) > 0 {
	}
	id := nodeID(m.to)
	for _, s := range slices.Concat([]*Redis{m.to, m.from}, m.cluster.Nodes) {
		if me, err := s.myself(); err == nil && me.flags["master"] {
			s.Do("CLUSTER", "SETSLOT", m.slot, "NODE", id)
		}
	}
	m.cluster.AwaitOK()
}

// KeysIn returns the number of keys of a slot at the server.
func (s *Redis) KeysIn(slot int) int {
	s.t.Helper()
	n, ok := s.Do("CLUSTER", "COUNTKEYSINSLOT", slot).(int64)
	if !ok {
		s.t.Fatal("testserver: no count of keys")
	}
	return int(n)
}

// Disown makes the master of an empty slot claim that another one has it, which does
// not know of that: the two name each other until the returned function informs the
// other one.
func (c *Cluster) Disown(slot int, to *Redis) (repair func()) {
	c.t.Helper()
	from, id := c.Master(slot), nodeID(to)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
	return func() {
		c.t.Helper()
		to.Do("CLUSTER", "SETSLOT", slot, "NODE", id)
		c.AwaitOK()
	}
}
