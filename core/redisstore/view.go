package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// view contains the live entries of a key.
type view struct {
	state store.State
	us    uint64 // the server's time
	// leases has a text for the ID of each revocable hold: the lease, the owner of a
	// plain key, or the field of a hold of Redisson.
	leases map[string]string
}

// farthest is the maximum of parsed numbers. It prevents an overflow of their sums.
const farthest = 1 << 53

// parseView parses the answer of show.lua: the time, and the fields that clock.lua
// describes. It returns false for a value that no script has written.
func parseView(key string, answer []string) (view, bool) {
	v := view{state: store.State{Key: key}, leases: make(map[string]string)}
	if len(answer)%2 == 0 {
		return v, false
	}
	us, ok := number(answer[0])
	if !ok {
		return v, false
	}
	v.us = us
	now := us / 1000
	var token uint64
	exclusive := 0
	for i := 1; i < len(answer); i += 2 {
		name, value := answer[i], answer[i+1]
		kind, lease, named := strings.Cut(name, ":")
		ok := true
		switch {
		case name == "t":
			token, ok = number(value)
		case name == "w":
			v.state.Waiters, ok = parseWaiters(value, now)
		case name == "r":
			v.state.Run, ok = parseRun(value, now)
		case named && (kind == "h" || kind == "k"):
			var h store.Hold
			h, ok = parseHold(value, now)
			if !ok || h.Left <= 0 {
				break
			}
			if kind == "h" {
				h.ID, h.Process = store.HoldID(lease), store.ProcessOf(lease)
				v.leases[h.ID] = lease
				if h.Weight == store.All {
					exclusive++
				}
			}
			v.state.Holds = append(v.state.Holds, h)
		case named && kind == "d":
		default:
			ok = false
		}
		if !ok {
			return view{}, false
		}
	}
	if exclusive == 1 {
		for i, h := range v.state.Holds {
			if h.ID != "" && h.Weight == store.All {
				v.state.Holds[i].Age = inspection.Age(token, us)
			}
		}
	}
	return v, true
}

// parseHold parses a hold: the time at which it was written, its length in ms, its
// owner and its weight.
func parseHold(value string, now uint64) (h store.Hold, ok bool) {
	f := strings.Split(value, " ")
	if len(f) != 4 {
		return h, false
	}
	written, ok := number(f[0])
	if !ok {
		return h, false
	}
	ms, ok := number(f[1])
	if !ok {
		return h, false
	}
	weight, ok := number(f[3])
	if !ok || weight < 1 || weight > uint64(store.All) {
		return h, false
	}
	h.Weight = int64(weight)
	h.Left = remaining(min(written/1000, now)+ms, now)
	return h, true
}

// parseWaiters parses the wait list, which waiters.lua describes.
func parseWaiters(value string, now uint64) (waiters []store.Hold, ok bool) {
	for line := range strings.SplitSeq(strings.Trim(value, "\n"), "\n") {
		f := strings.Split(line, " ")
		if line == "" {
			continue
		}
		if len(f) != 7 {
			return nil, false
		}
		ends, ok := number(f[1])
		if !ok {
			return nil, false
		}
		weight, ok := number(f[3])
		if !ok || weight < 1 || weight > uint64(store.All) {
			return nil, false
		}
		life := remaining(ends, now)
		if life <= 0 || life > 2*store.WaiterLife {
			continue
		}
		waiters = append(waiters, store.Hold{
			ID: store.HoldID(f[0]), Process: store.ProcessOf(f[0]), Weight: int64(weight), Left: life,
			Fair: f[2] == "1" || f[2] == "3" || f[2] == "5",
		})
	}
	return waiters, true
}

// parseRun parses the field of a record: its deadline, its attempt and its state. It
// returns nil for a record that has expired.
func parseRun(value string, now uint64) (run *store.Run, ok bool) {
	f := strings.SplitN(value, " ", 4)
	if len(f) < 3 || len(f[2]) != 1 {
		return nil, false
	}
	ends, ok := number(f[0])
	if !ok {
		return nil, false
	}
	attempt, ok := number(f[1])
	if !ok || attempt > 1<<31-1 {
		return nil, false
	}
	life := remaining(ends, now)
	if life <= 0 {
		return nil, true
	}
	return &store.Run{Attempt: int(attempt), Done: f[2] == "1", Left: life}, true
}

// maxOwner is the maximum length of an owner in bytes. A longer value is not a lock.
const maxOwner = 256

// keptBy is the prefix of the value of a plain key that stays taken without a holder.
const keptBy = "kept:"

// parsePlain parses the answer of plain_show.lua.
func parsePlain(key string, answer []string) (view, bool) {
	v := view{state: store.State{Key: key}, leases: make(map[string]string)}
	if len(answer) == 0 {
		return v, true
	}
	if len(answer) != 2 {
		return view{}, false
	}
	ms, err := strconv.ParseInt(answer[0], 10, 64)
	if err != nil || ms > farthest {
		return view{}, false
	}
	h := store.Hold{Weight: store.All, Left: remaining(uint64(max(ms, 0)), 0)}
	if owner := answer[1]; !strings.HasPrefix(owner, keptBy) {
		h.ID = store.HoldID(owner)
		v.leases[h.ID] = owner
	}
	v.state.Holds = append(v.state.Holds, h)
	return v, true
}

// remaining returns the time from now until ends, both in ms.
func remaining(ends, now uint64) time.Duration {
	if ends <= now {
		return 0
	}
	return time.Duration(min(ends-now, uint64(store.MaxKeep/time.Millisecond)*1000)) * time.Millisecond
}

func number(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n <= farthest && s[0] != '+'
}

func (v view) empty() bool {
	return len(v.state.Holds) == 0 && len(v.state.Waiters) == 0 && v.state.Run == nil
}
