package testserver

import (
	"slices"
	"testing"
)

// Migration moves a slot of a Cluster from one master to another. During the migration
// the source serves the keys that it still has, and redirects clients to the target for
// all other keys.
type Migration struct {
	t        testing.TB
	cluster  *Cluster
	slot     int
	from, to *Redis
}

// Migrate moves slot and all its keys to another master, the parameter to.
func (c *Cluster) Migrate(slot int, to *Redis) {
	c.t.Helper()
	c.BeginMigration(slot, to).Finish()
}

// BeginMigration starts the migration of slot to another master, the parameter to.
// MoveKeys and Finish move the keys.
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

// MoveKeys moves up to n of the keys that have not been moved yet, and returns the
// number of moved keys.
func (m *Migration) MoveKeys(n int) int {
	m.t.Helper()
	keys := m.from.Do("CLUSTER", "GETKEYSINSLOT", m.slot, n).([]any)
	if len(keys) > 0 {
		m.from.Do(append([]any{"MIGRATE", "127.0.0.1", m.to.Port(), "", 0, 10000, "KEYS"}, keys...)...)
	}
	return len(keys)
}

// Finish moves the remaining keys and informs all masters of the move: first the new
// master, then the old master, then the others.
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

// Disown makes two nodes disagree about an empty slot. The slot's master names the
// other node (the parameter to) as the owner, while the other node still names the
// master. repair makes the other node name itself, and waits until the cluster agrees.
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
