package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// requestLog records the requests in flight, for each claim at each node. It also
// records the requests that failed without an answer, because they may still arrive.
// With these records, a late answer to one attempt does not undo the next attempt.
type requestLog struct {
	mu      sync.Mutex
	nodes   int // the number of nodes
	serial  uint64
	entries map[claimID]*entry
	sweepAt int // the number of entries at which sweep removes some
}

type claimID struct{ key, lease string }

func idOf(c *store.Claim) claimID { return claimID{c.Key, c.Lease} }

// entry is the record of one claim.
type entry struct {
	nodes    []nodeEntry
	last     uint64 // the serial of the last acquire
	ttl      time.Duration
	until    time.Time     // from then on no unanswered request is expected to arrive
	extends  int           // extensions in flight, which can send acquires to restore the claim
	released bool          // the claim was released during an extension
	returned chan struct{} // closed when the next acquire has returned; nil unless requested
}

// nodeEntry is the record of one claim at one node.
type nodeEntry struct {
	acquires        int           // the number in flight
	releases        int           // the number in flight
	fullReleases    int           // the number in flight that are part of a release at all nodes
	acquireUnknown  bool          // an acquire was not answered and may still be granted
	releaseUnknown  bool          // a release was not answered and may still arrive
	releasesPlanned int           // the number of releases that the cleanup will send
	last            uint64        // the serial of the last acquire
	wanted          bool          // no release was sent after the last acquire
	tombstone       bool          // the node refuses an acquire that may still arrive
	releasesDone    chan struct{} // closed when no release is in flight; nil unless requested
}

// request is an acquire at one node.
type request struct {
	serial uint64
	after  <-chan struct{} // the acquire must not be sent before this is closed, unless nil
}

// arrivalLimit is the minimum time for which an unanswered request is assumed to be able
// to arrive.
const arrivalLimit = time.Minute

func newRequestLog(nodes int) *requestLog {
	return &requestLog{nodes: nodes, entries: make(map[claimID]*entry), sweepAt: 64}
}

// acquireSent records that c is being sent to node i. It returns false, and records
// nothing, if a release may arrive later. That release would end the grant.
func (l *requestLog) acquireSent(c *store.Claim, i int) (request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addAcquire(c, i)
}

// healSent records an acquire that an extension sends, like acquireSent. It also
// returns false if c was released after the extension began.
func (l *requestLog) healSent(c *store.Claim, i int) (request, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry(c).released {
		return request{}, false
	}
	return l.addAcquire(c, i)
}

func (l *requestLog) addAcquire(c *store.Claim, i int) (request, bool) {
	e := l.entry(c)
	n := &e.nodes[i]
	if n.releaseUnknown && time.Now().After(e.until) {
		n.releaseUnknown = false
	}
	if n.releaseUnknown || n.releasesPlanned > 0 {
		return request{}, false
	}
	l.serial++
	n.acquires++
	n.last, e.last, n.wanted, n.tombstone = l.serial, l.serial, true, false
	e.ttl = max(e.ttl, c.TTL)
	if n.releases > 0 && n.releasesDone == nil {
		n.releasesDone = make(chan struct{})
	}
	return request{l.serial, n.releasesDone}, true
}

type acquireOutcome struct {
	unknown  bool // the acquire may still be granted
	granted  bool
	unwanted bool // the caller cannot use the grant
}

type grantFate int

const (
	grantStays      grantFate = iota // the grant stays, or there is none
	releaseUnderWay                  // a release in flight ends the grant
	releaseNow                       // the caller has to send a release, already recorded as sent
)

// acquireDone records that an acquire has returned. It returns the fate of the grant, if
// there is one. The grant of an older attempt stays if a newer attempt still wants the
// claim.
func (l *requestLog) acquireDone(c *store.Claim, i int, r request, o acquireOutcome) grantFate {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	n := &e.nodes[i]
	n.acquires--
	if e.returned != nil {
		close(e.returned)
		e.returned = nil
	}
	if o.unknown && !n.tombstone {
		n.acquireUnknown = true
		e.until = time.Now().Add(max(e.ttl, arrivalLimit))
	}
	fate := grantStays
	switch {
	case !o.granted || n.wanted && (!o.unwanted || n.last != r.serial):
	case n.fullReleases > 0 && !n.wanted:
		fate = releaseUnderWay // a second release would make the first release return ErrLost
	default:
		n.releases++
		n.wanted, fate = false, releaseNow
	}
	l.drop(c, e)
	return fate
}

// acquireUnderWay returns a channel that is closed when the next acquire of c has
// returned. It returns nil if no acquire is in flight to node i. It also returns nil if
// an acquire waits for a release there. Otherwise the acquire and the caller's release
// would wait for each other.
func (l *requestLog) acquireUnderWay(c *store.Claim, i int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[idOf(c)]
	if e == nil || e.nodes[i].acquires == 0 || e.nodes[i].releasesDone != nil {
		return nil
	}
	return e.nextReturn()
}

// moreAcquires returns a channel that is closed when the next acquire of c has
// returned. It returns nil if an acquire of c is in flight to at most as many nodes as
// the parameter most.
func (l *requestLog) moreAcquires(c *store.Claim, most int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[idOf(c)]
	if e == nil {
		return nil
	}
	nodes := 0
	for _, n := range e.nodes {
		if n.acquires > 0 {
			nodes++
		}
	}
	if nodes <= most {
		return nil
	}
	return e.nextReturn()
}

func (e *entry) nextReturn() <-chan struct{} {
	if e.returned == nil {
		e.returned = make(chan struct{})
	}
	return e.returned
}

func (l *requestLog) lastSerial(c *store.Claim) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[idOf(c)]; e != nil {
		return e.last
	}
	return 0
}

// claimAt identifies a claim at a node, each by its index.
type claimAt struct{ claim, node int }

// extendSent records that claims are being extended. It returns the claims and nodes
// with an acquire in flight.
func (l *requestLog) extendSent(claims []store.Claim) (underWay map[claimAt]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range claims {
		e := l.entry(&claims[i])
		e.extends++
		for at := range e.nodes {
			if e.nodes[at].acquires == 0 {
				continue
			}
			if underWay == nil {
				underWay = make(map[claimAt]bool)
			}
			underWay[claimAt{i, at}] = true
		}
	}
	return underWay
}

func (l *requestLog) extendDone(claims []store.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range claims {
		e := l.entry(&claims[i])
		e.extends--
		l.drop(&claims[i], e)
	}
}

// stopHealing records that c is being released, so that no extension sends it again.
func (l *requestLog) stopHealing(c *store.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[idOf(c)]; e != nil {
		e.released = true
	}
}

// releaseSent records that a release of c is being sent to node i. unsure reports
// whether an acquire of c may arrive there after the release. ttl is the longest TTL of
// such an acquire.
func (l *requestLog) releaseSent(c *store.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addRelease(c, i)
}

// fullReleaseSent records a release like releaseSent, as part of a release at all
// nodes. Its releaseOutcome must have full set. A caller that delays the release calls
// unsure before sending it.
func (l *requestLog) fullReleaseSent(c *store.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsure, ttl = l.addRelease(c, i)
	l.entry(c).nodes[i].fullReleases++
	return unsure, ttl
}

// releaseSentUnless records a release like releaseSent, if last is the serial of c's
// last acquire. Otherwise it returns false and records nothing.
func (l *requestLog) releaseSentUnless(c *store.Claim, i int, last uint64) (ttl time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[idOf(c)]; e == nil || last == 0 || e.last != last {
		return 0, false
	}
	_, ttl = l.addRelease(c, i)
	return ttl, true
}

func (l *requestLog) addRelease(c *store.Claim, i int) (unsure bool, ttl time.Duration) {
	e := l.entry(c)
	n := &e.nodes[i]
	n.releases++
	n.wanted = false
	return n.acquireUnknown || n.acquires > 0, e.ttl
}

func (l *requestLog) unsure(c *store.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	return e.nodes[i].acquireUnknown || e.nodes[i].acquires > 0, e.ttl
}

type releaseOutcome struct {
	unknown   bool // the release may still arrive
	tombstone bool // the node now refuses an acquire that may still arrive
	again     bool // the cleanup will send the release again, and finally call plannedDone
	full      bool // the release was recorded by fullReleaseSent
}

func (l *requestLog) releaseDone(c *store.Claim, i int, o releaseOutcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	n := &e.nodes[i]
	if n.releases--; n.releases == 0 && n.releasesDone != nil {
		close(n.releasesDone)
		n.releasesDone = nil
	}
	if o.full {
		n.fullReleases--
	}
	if o.again {
		n.releasesPlanned++
	}
	if o.unknown {
		n.releaseUnknown = true
		e.until = time.Now().Add(max(e.ttl, arrivalLimit))
	}
	if o.tombstone {
		n.acquireUnknown, n.tombstone = false, true
	}
	l.drop(c, e)
}

// plannedDone records that the cleanup will not send its release of c any more.
func (l *requestLog) plannedDone(c *store.Claim, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	e.nodes[i].releasesPlanned--
	l.drop(c, e)
}

// releaseMayArrive reports whether a release of c may still arrive at node i.
func (l *requestLog) releaseMayArrive(c *store.Claim, i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[idOf(c)]
	return e != nil && (e.nodes[i].releaseUnknown || e.nodes[i].releasesPlanned > 0)
}

func (l *requestLog) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *requestLog) entry(c *store.Claim) *entry {
	id := idOf(c)
	e := l.entries[id]
	if e == nil {
		l.sweep()
		e = &entry{nodes: make([]nodeEntry, l.nodes)}
		l.entries[id] = e
	}
	return e
}

// drop removes e if it has no request in flight, unanswered or planned.
func (l *requestLog) drop(c *store.Claim, e *entry) {
	for _, n := range e.nodes {
		if n.acquires > 0 || n.releases > 0 || n.releasesPlanned > 0 || n.acquireUnknown || n.releaseUnknown {
			return
		}
	}
	if e.extends == 0 {
		delete(l.entries, idOf(c))
	}
}

// sweep removes entries whose unanswered requests are no longer expected to arrive. It
// does so when there are twice as many entries as after the last sweep, and at least
// 64.
func (l *requestLog) sweep() {
	if len(l.entries) < l.sweepAt {
		return
	}
	now := time.Now()
	for id, e := range l.entries {
		busy := e.extends > 0
		for _, n := range e.nodes {
			busy = busy || n.acquires > 0 || n.releases > 0 || n.releasesPlanned > 0
		}
		if !busy && now.After(e.until) {
			delete(l.entries, id)
		}
	}
	l.sweepAt = max(64, 2*len(l.entries))
}

// awaitReleases waits until no release of the claim is in flight to the node. It fails
// if ctx is done earlier, or if a release of the claim may still arrive at the node.
func (s *Store) awaitReleases(ctx context.Context, c *store.Claim, i int, r request) error {
	if r.after == nil {
		return nil
	}
	select {
	case <-r.after:
	case <-ctx.Done():
		return errReleasePending
	}
	if s.requests.releaseMayArrive(c, i) {
		return errReleasePending
	}
	return nil
}

// awaitAcquires waits until an acquire of c is in flight to at most as many nodes as the
// parameter most, or until ctx is done.
func (s *Store) awaitAcquires(ctx context.Context, c *store.Claim, most int) {
	for {
		returned := s.requests.moreAcquires(c, most)
		if returned == nil {
			return
		}
		select {
		case <-returned:
		case <-ctx.Done():
			return
		}
	}
}
