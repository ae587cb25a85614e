package core

import "time"

// turns makes a process share its keys with other processes if waiters cannot be woken,
// as with plain keys. The waiters of other processes then poll. A process that asked at
// once after each of its releases would usually find the key free, and the polling
// waiters would find it taken. So a process uses a key in turns if other processes want
// the key. After each turn it waits for a step, the first pause of its retry policy,
// before it asks again.
//
// The map has some of the keys that other processes had recently. The mutex of waiters
// guards the map.
type turns map[string]*turn

// turn is a period in which this process has a key, by several holds one after the
// other.
type turn struct {
	rivals time.Time // until this time, other processes probably want the key
	began  time.Time // zero between turns
	ended  time.Time // the end of the last turn; zero if a turn has begun or a rival was seen since
}

// noteRival records that another process has key while this process waits for it. If the
// map is full, noteRival clears it first.
func (ts turns) noteRival(key string) {
	if len(ts) >= mostContended && ts[key] == nil {
		clear(ts)
	}
	ts[key] = &turn{rivals: time.Now().Add(pollEvery)}
}

// noteGrant begins a turn for key, if another process had the key recently and no turn
// has begun.
func (ts turns) noteGrant(key string) {
	if t := ts[key]; t != nil && t.began.IsZero() {
		t.began, t.ended = time.Now(), time.Time{}
	}
}

// noteRelease records that this process is about to release key. If other processes
// probably do not want the key any more, noteRelease forgets the key. Otherwise it ends
// a turn that has lasted for passTime, and a younger turn continues with the next grant.
func (ts turns) noteRelease(key string) {
	t := ts[key]
	if t == nil {
		return
	}
	switch now := time.Now(); {
	case now.After(t.rivals):
		delete(ts, key)
	case !t.began.IsZero() && now.Sub(t.began) >= passTime:
		t.began, t.ended = time.Time{}, now
	}
}

// rest returns the time for which this process still leaves key to other processes.
// This time ends one step after the end of the process's last turn. rest returns 0 or
// less if this process may ask.
func (ts turns) rest(key string, step time.Duration) time.Duration {
	if t := ts[key]; t != nil && !t.ended.IsZero() {
		return time.Until(t.ended.Add(step))
	}
	return 0
}
