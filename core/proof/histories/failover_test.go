package histories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// failOver promotes the replica. It may lack the last writes, or more if it was not in
// step yet. failOver notes what the new master has before a client can ask it.
func (n *nemesis) failOver(d *deed) {
	old := n.server
	n.server, n.replica = n.replica, old
	old.Pause()
	n.server.Do("REPLICAOF", "NO", "ONE")
	d.At, d.Left = mono(), make(map[string][]string)
	for _, key := range keys {
		d.Left[key] = holds(n.t, n.server, key)
	}
	for _, c := range n.workers {
		c.proxy.Retarget(n.server.Addr)
		c.proxy.Sever()
	}
	old.Resume()
	follow(old, n.server)
}

// follow makes a server the replica of another.
func follow(replica, master *testserver.Redis) {
	replica.Do("REPLICAOF", "127.0.0.1", fmt.Sprint(master.Port()))
}

// holds lists the claims that have a hold of key at a server.
func holds(t testing.TB, server *testserver.Redis, key string) []string {
	now := time.Now().UnixMilli()
	// A type of answer that is not expected must not look like a key that is free.
	fields, err := testclient.Fields(context.Background(), testclient.Redis(t, server.Addr), "lk2:{"+key+"}")
	if err != nil {
		panic(err)
	}
	ids := []string{}
	for field, value := range fields {
		id, ok := strings.CutPrefix(field, "h:")
		if !ok {
			continue
		}
		var since, ms int64
		if _, err := fmt.Sscan(value, &since, &ms); err != nil || since/1000+ms > now {
			ids = append(ids, id)
		}
	}
	return ids
}

// turn is what a deed did to a key.
type turn struct {
	deed
	key   string
	asked asked
}

// failOver says what the key's lock came to be. The new master knows what the
// old one knew a while ago, or what it knew itself when it was last the master.
// What has ended since is back until it expires. Even a hold that the server had
// forgotten can be back while its holder still relies on it, and then goes on
// with all its extensions, though others have had the key in between.
func (d *doubts) failOver(over deed, key string) {
	to := func(what, claim string) {
		when := over
		if over.At > 0 {
			when.To = over.At
		}
		d.turns = append(d.turns, turn{when, key, asked{What: what, Claim: claim}})
	}
	ids, seen := over.Left[key]
	if seen && len(ids) == 0 {
		to("forget", "")
		return
	}
	if seen && len(ids) == 1 {
		c := d.byID(ids[0])
		var known *call
		if c != nil {
			known, _ = c.grants()
		}
		switch {
		case known == nil || d.gone(c) < over.From:
			// No process relies on it.
			to("forget", "")
			d.add(key, over.From, over.To+life)
			return
		case (c.last().ReleaseCall == 0 || c.last().ReleaseCall > over.At) && max(c.last().Until, c.last().Ret) > over.At:
			// It was not released at the old one.
			to("holds", c.ID)
			return
		}
	}
	// It was being released.
	end := over.To + life
	for _, c := range d.claims {
		if known, _ := c.grants(); c.Key == key && known != nil && c.try.Call <= over.To {
			if gone := d.gone(c); gone >= over.From {
				end = max(end, gone)
			}
		}
	}
	to("may forget", "")
	d.add(key, over.From, end)
}

func (d *doubts) byID(id string) *claim {
	for _, c := range d.claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}
