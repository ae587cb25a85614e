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

// failOver promotes the replica. The replica may lack the last writes, or more if it was
// not in sync yet. failOver records the holds of the new master before a client can send
// it a request.
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

func follow(replica, master *testserver.Redis) {
	replica.Do("REPLICAOF", "127.0.0.1", fmt.Sprint(master.Port()))
}

// holds lists the claims that hold key at a server.
func holds(t testing.TB, server *testserver.Redis, key string) []string {
	now := time.Now().UnixMilli()
	// Fields fails for an unexpected type of reply, which must not look like a free
	// key.
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

// turn is the effect of a deed on a key.
type turn struct {
	deed
	key   string
	asked asked
}

// failOver adds the turn of a failover for a key's lock. The new master has an earlier
// state of the old master, or the state that it had when it was last the master itself.
// Holds that were released or expired since that state exist again until they expire.
// Even a hold that the server had lost can exist again while its holder still relies on
// it. In that case the hold continues with all its extensions, although others have
// held the key in the meantime.
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
			// No process relies on the hold.
			to("forget", "")
			d.add(key, over.From, over.To+life)
			return
		case (c.last().ReleaseCall == 0 || c.last().ReleaseCall > over.At) && max(c.last().Until, c.last().Ret) > over.At:
			// The old master had not released the hold.
			to("holds", c.ID)
			return
		}
	}
	// The state of the lock is uncertain: a release was in flight, there were several
	// holds, or the holds were not recorded.
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
