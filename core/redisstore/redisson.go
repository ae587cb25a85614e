package redisstore

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// This file has the calls for locks that are shared with Redisson's RLock
// (WithRedisson), the names of Redisson's keys and channels, and the parser of a lock.
// lua/redisson.lua describes the stored form. Extend sends the same arguments for all
// forms of keys except plain keys (extend.go). channels.go has the wake-ups.

func (s *Store) askingRedisson(c *store.Claim) *pipeline.Call {
	var room [64]byte
	counter := ""
	if c.MinToken > 0 {
		counter = s.counterOf(c.Key)
	}
	cmd := s.pipeline.Eval(s.script.acquire, s.named(room[:0], c.Key), counter, "acquire")
	cmd.Optional().Text(c.Lease).Text(c.Owner).Num(millis(c.TTL)).Text(c.Via)
	if c.MinToken > 0 {
		cmd.Num(int64(c.MinToken)).Num(store.TokenStep)
	}
	return cmd
}

func (s *Store) releasingRedisson(what, key, lease string, keep time.Duration) *pipeline.Call {
	var room [64]byte
	name := s.named(room[:0], key)
	queue := ""
	if !s.split(key) {
		queue = beside("redisson_lock_queue", string(name))
	}
	cmd := s.pipeline.Eval(s.script.release, name, queue, what)
	cmd.Text(lease).Text(s.channelOf(key)).Num(millis(keep))
	if s.cluster != nil {
		cmd.Word("1")
	}
	return cmd
}

// beside returns the name of a second key or channel that Redisson uses for the lock with
// this name, in the lock's slot of a Cluster. Redisson's RedissonObject.prefixName makes
// the same name.
func beside(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// split reports whether a lock and its second keys are in different slots of a Cluster.
// That is so if the lock's name has braces that are not a hash tag. Redisson has neither
// sharded messages nor tokens for such a lock.
func (s *Store) split(key string) bool {
	name := s.key(key)
	return s.cluster != nil && tagOf(beside("", name)) != tagOf(name)
}

// tagOf returns the part of a name that chooses its slot in a Cluster.
func tagOf(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}

// channelOf returns the channel to which Redisson publishes "0" when a lock becomes free.
func (s *Store) channelOf(key string) string { return beside("redisson_lock__channel", s.key(key)) }

// counterOf returns the name of the key in which RFencedLock counts its tokens.
func (s *Store) counterOf(key string) string { return beside("redisson_lock_token", s.key(key)) }

// redissonField matches the name of a field that Redisson writes: a thread of a client,
// or a writer of a read-write lock. redissonCount matches the field's value, which is the
// number of the thread's entries.
var (
	redissonField = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+(:write)?$`)
	redissonCount = regexp.MustCompile(`^[1-9]\d*$`)
)

// parseRedisson parses the answer of redisson_show.lua. It returns false for a hash that
// is not a lock.
func parseRedisson(key string, answer []string) (view, bool) {
	v := view{state: store.State{Key: key}, leases: make(map[string]string)}
	if len(answer) == 0 {
		return v, true
	}
	if len(answer)%2 != 0 {
		return view{}, false
	}
	now, ok := number(answer[0])
	left, err := strconv.ParseInt(answer[1], 10, 64)
	if !ok || err != nil || left > farthest {
		return view{}, false
	}
	theirs := store.All
	if i := slices.Index(answer, "mode"); i > 0 && i%2 == 0 && answer[i+1] == "read" {
		theirs = 1
	}
	for i := 2; i < len(answer); i += 2 {
		field, value := answer[i], answer[i+1]
		h := store.Hold{ID: store.HoldID(field), Weight: store.All, Left: remaining(uint64(max(left, 0)), 0)}
		switch ours := strings.Split(value, " "); {
		case field == "mode" && (value == "read" || value == "write"):
			continue
		case redissonField.MatchString(field) && redissonCount.MatchString(value):
			h.Weight = theirs
		case len(ours) == 3:
			ends, ok := number(ours[0])
			if _, err := strconv.ParseUint(ours[2], 10, 64); !ok || err != nil {
				return view{}, false
			}
			h.Process = store.ProcessOf(field)
			if h.Left = remaining(ends, now); h.Left <= 0 {
				continue
			}
			if ours[1] == "" {
				h.ID, h.Process = "", ""
			}
		default:
			return view{}, false
		}
		if h.ID != "" {
			v.leases[h.ID] = field
		}
		v.state.Holds = append(v.state.Holds, h)
	}
	return v, true
}
