package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
)

// ballot sends one claim to the nodes and collects their votes. It also handles the
// answers that arrive after the verdict.
type ballot struct {
	store *Store
	claim store.Claim

	mu      sync.Mutex
	votes   votes
	verdict verdict
	final   bool          // release was called: later grants are not wanted
	begun   time.Time     // the time at which all nodes were asked
	asked   time.Time     // the time at which nodes were last asked
	took    time.Duration // the longest wait for answers in one round
	late    bool          // a majority may decide without the nodes that have not answered
	owner   string        // after a win: the owner to whom the majority has granted the claim
	done    chan struct{} // closed at the verdict
	news    chan struct{} // receives a value when an answer has arrived
}

var (
	errNotAsked       = errors.New("not asked") // because too few other nodes can vote
	errReleasePending = errors.New("a release of the claim may still reach the node")
)

func (s *Store) newBallot(c store.Claim) *ballot {
	return &ballot{
		store: s, claim: c, votes: make(votes, len(s.nodes)), begun: time.Now(), news: make(chan struct{}, 1),
	}
}

// ask sends the claim to each node for which the function again returns true. It leaves
// out nodes in quarantine, nodes that may still get a release of the claim, and nodes to
// which a request of the ballot is already in flight. If too few nodes are left for a
// majority, it sends nothing.
func (b *ballot) ask(ctx context.Context, again func(i int, v vote) bool) {
	s := b.store
	b.mu.Lock()
	b.verdict, b.done, b.asked = undecided, make(chan struct{}), time.Now()
	var nodes []*node
	requests := make([]request, len(s.nodes))
	for i, n := range s.nodes {
		if b.votes[i].pending || !again(i, b.votes[i]) {
			continue
		}
		if err := s.membership.quarantine(i); err != nil {
			b.votes[i] = vote{kind: failed, err: err}
			s.membership.lookAgain(s.ctx)
			continue
		}
		r, ok := s.requests.acquireSent(&b.claim, i)
		if !ok {
			b.votes[i] = vote{kind: failed, err: errReleasePending}
			continue
		}
		b.votes[i], requests[i] = vote{pending: true}, r
		nodes = append(nodes, n)
	}
	if b.decide(); b.verdict == noMajority {
		for _, n := range nodes {
			b.votes[n.index] = vote{kind: failed, err: errNotAsked}
			s.requests.acquireDone(&b.claim, n.index, requests[n.index], acquireOutcome{})
		}
		nodes = nil
	}
	b.mu.Unlock()
	for _, n := range nodes {
		b.send(ctx, n, requests[n.index])
	}
}

// lead sends the claim to a single node, chosen among the nodes that were not asked yet
// and are not silent. It treats these nodes as a circle and begins with the node at
// index skip. After a node that fails, lead continues with the next node. It returns
// false if a node answers that the key is busy, or if ctx is done. It returns true if a
// node gives another answer, does not answer within its time-out, or if no node is left.
func (b *ballot) lead(ctx context.Context, skip int) bool {
	var open []int
	for i, v := range b.votes { // no request is in flight that changes the votes
		if v.kind == silent && !b.store.nodes[i].isSilent() {
			open = append(open, i)
		}
	}
	for k := range open {
		switch b.askAlone(ctx, open[(skip+k)%len(open)]) {
		case failed:
			continue
		case busy:
			return false
		}
		return ctx.Err() == nil
	}
	return true
}

// askAlone sends the claim to node i and returns the kind of its answer. It returns
// silent if the answer does not arrive within the time-out of a node, or before ctx is
// done.
func (b *ballot) askAlone(ctx context.Context, i int) kind {
	b.ask(ctx, func(at int, _ vote) bool { return at == i })
	timer := time.NewTimer(b.store.timeout)
	defer timer.Stop()
	defer b.measure()
	for {
		b.mu.Lock()
		v := b.votes[i]
		b.mu.Unlock()
		if !v.pending {
			return v.kind
		}
		select {
		case <-b.news:
		case <-timer.C:
			return silent
		case <-ctx.Done():
			return silent
		}
	}
}

func (b *ballot) send(ctx context.Context, n *node, r request) {
	s := b.store
	var v vote
	start := time.Now()
	s.call(ctx, n, func(ctx context.Context) error {
		err := s.awaitReleases(ctx, &b.claim, n.index, r)
		if err != nil {
			v.kind = failed
			return err
		}
		if v.grant, err = n.store.Acquire(ctx, b.claim); err != nil {
			v.kind = kindOf(err)
			return err
		}
		if err = s.counts(ctx, n); err != nil {
			v.kind = uncounted
			return err
		}
		v.kind = granted
		return nil
	}, func(err error) {
		if v.err = err; v.kind == silent {
			v.kind = kindOf(err) // the node was not called
		}
		s.report(ctx, n, start, err)
		b.settle(ctx, n, r, v)
	})
}

// settle records the answer of a node. It releases a grant that is too late, or whose
// owner differs from the majority's.
func (b *ballot) settle(ctx context.Context, n *node, r request, v vote) {
	b.mu.Lock()
	fate := b.store.requests.acquireDone(&b.claim, n.index, r, acquireOutcome{
		unknown: v.kind == unknown, granted: v.holds(),
		unwanted: b.final || b.verdict == won && v.grant.Owner != b.owner,
	})
	if fate != grantStays {
		v.kind, v.err = failed, errReleasePending // a grant that is being released is not a vote
	}
	b.votes[n.index] = v
	if b.verdict == undecided {
		b.decide()
	}
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	if fate == releaseNow {
		b.store.releaseGrant(ctx, n, b.claim, func(error) {})
	}
}

// decide sets the verdict if it is certain. The caller holds the mutex.
func (b *ballot) decide() {
	if b.verdict, b.owner = b.votes.verdict(b.store.quorum, b.late); b.verdict != undecided {
		close(b.done)
	}
}

// await waits for the verdict. After the time-out of a node, the answers of a majority
// are enough for a decision. If no majority has answered, await waits for more answers
// until ctx is done.
func (b *ballot) await(ctx context.Context) verdict {
	timer := time.NewTimer(b.store.timeout - time.Since(b.begun))
	defer timer.Stop()
	select {
	case <-b.done:
	case <-ctx.Done():
		b.beLate()
	case <-timer.C:
		b.beLate()
		select {
		case <-b.done:
		case <-ctx.Done():
		}
	}
	b.measure()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.verdict == undecided {
		b.verdict = noMajority
	}
	return b.verdict
}

func (b *ballot) measure() { b.took = max(b.took, time.Since(b.asked)) }

// beLate ends the wait for further answers if the nodes that have answered can decide.
func (b *ballot) beLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late = true; b.verdict == undecided {
		b.decide()
	}
}

// A refused claim asks the busy nodes again. The retries stop when there were
// leastRetries of them and half of a node's time has passed. A node's time is the node
// time-out, or the longest wait for answers if that was longer. The retries always stop
// after mostRetried times a node's time.
const (
	leastRetries = 6
	mostRetried  = 4
	firstPause   = time.Millisecond
	longestPause = 64 * firstPause
)

// retry asks the busy nodes again while the claim is refused, the function allowed
// returns true, and ctx leaves time for their answers.
func (b *ballot) retry(ctx context.Context, v verdict, allowed func() bool) verdict {
	pause, begun := firstPause, time.Now()
	for round := 0; v == refused && allowed() && timeFor(ctx, 2*b.took); round++ {
		nodeTime, tried := max(b.store.timeout, b.took), time.Since(begun)
		if round >= leastRetries && tried >= nodeTime/2 || tried > mostRetried*nodeTime || clock.Sleep(ctx, pause/2+rand.N(pause)) != nil {
			return v
		}
		pause = min(2*pause, longestPause)
		b.ask(ctx, func(_ int, v vote) bool { return v.kind == busy })
		v = b.await(ctx)
	}
	return v
}

// retryIfFirst asks the busy nodes again if the claim was refused, and as long as the
// claim has the first node (votes.hasFirst). The other claims of a split vote are
// released in the meantime.
func (b *ballot) retryIfFirst(ctx context.Context, v verdict) verdict {
	if v == refused {
		b.awaitFirst(ctx)
	}
	return b.retry(ctx, v, b.hasFirst)
}

// firstGrace is the minimum time limit of awaitFirst, unless less of the node time-out
// is left.
const firstGrace = 5 * time.Millisecond

// awaitFirst waits briefly for the nodes that come before the first answering node in
// the list. Without their answers it is not certain which claim has the first node.
// awaitFirst does not wait for silent nodes, or for longer than the time-out of a node.
func (b *ballot) awaitFirst(ctx context.Context) {
	took := time.Since(b.begun)
	timer := time.NewTimer(min(b.store.timeout-took, max(firstGrace, 2*took)))
	defer timer.Stop()
	for b.firstPending() {
		select {
		case <-b.news:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (b *ballot) firstPending() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		switch {
		case v.pending && b.store.nodes[i].isSilent():
		case v.pending || v.kind == granted || v.kind == busy:
			return v.pending
		}
	}
	return false
}

func (b *ballot) hasFirst() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.votes.hasFirst()
}

// releaseAndWait makes the nodes release their grants of a refused claim. It waits for
// the releases for at most nodeTime, or until ctx is done. It reports whether any node
// had granted the claim.
func (b *ballot) releaseAndWait(ctx context.Context, nodeTime time.Duration) (some bool) {
	s := b.store
	released, some := b.release(ctx)
	if !some {
		return false
	}
	settled := make(chan struct{})
	s.run(func() {
		released.Wait()
		close(settled)
	})
	timer := time.NewTimer(nodeTime)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	case <-ctx.Done():
	}
	return true
}

// release ends a ballot whose claim has failed, and makes the nodes release their
// grants. released waits for these releases, and some reports whether there are any. A
// node that has not answered gets a release later, unless the claim is sent again. A
// waiting claim needs no later release, because its caller sends the claim again or
// releases it.
func (b *ballot) release(ctx context.Context) (released *sync.WaitGroup, some bool) {
	s := b.store
	released = new(sync.WaitGroup)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.final = true
	for i, v := range b.votes {
		switch {
		case v.pending || v.kind == unknown:
			if !b.claim.Wait {
				s.cleanup.later(b.claim, i)
			}
		case v.holds():
			s.requests.releaseSent(&b.claim, i)
			released.Add(1)
			some = true
			s.releaseGrant(ctx, s.nodes[i], b.claim, func(error) { released.Done() })
		}
	}
	return released, some
}

// releaseOtherOwners releases the claim at the nodes that have granted it to a
// different owner from the majority's. Such grants occur when a claim joins an owner
// that only some nodes know.
func (b *ballot) releaseOtherOwners(ctx context.Context) {
	s := b.store
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if v.holds() && v.grant.Owner != b.owner {
			s.requests.releaseSent(&b.claim, i)
			s.releaseGrant(ctx, s.nodes[i], b.claim, func(error) {})
		}
	}
}

// overdue returns the initial votes for a further ballot. These votes mark the nodes
// whose answers are overdue in this ballot. The further ballot does not ask them.
func (b *ballot) overdue() votes {
	b.mu.Lock()
	defer b.mu.Unlock()
	some := make(votes, len(b.votes))
	for i, v := range b.votes {
		if v.pending || v.kind == unknown {
			some[i] = vote{kind: unknown, err: errNodeTimeout}
		}
	}
	return some
}

// winners returns the votes of the majority, and the owner to whom the majority has
// granted the claim. The ballot must have been won.
func (b *ballot) winners() (owner string, some votes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.owner, b.votes.grantedTo(b.owner)
}

// expectsVotes reports whether an answer is pending from a node that is not silent.
func (b *ballot) expectsVotes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if v.pending && !b.store.nodes[i].isSilent() {
			return true
		}
	}
	return false
}

// token returns the token that a majority knows. If there is none, it returns the
// highest token of the votes, and known is false. It waits briefly for all votes,
// because fewer votes can lead to another token:
//
//   - A second sender of the same claim must find the same highest token.
//   - A holder that sends its claim again must find the majority that knows its token,
//     even if a late node has assigned a higher token.
//
// If votes are missing, a claim that is sent again can get another token. That token is
// higher, so the resource still accepts it.
func (b *ballot) token(ctx context.Context) (token uint64, known bool) {
	timer := time.NewTimer(b.store.timeout / 5)
	defer timer.Stop()
	for {
		complete := !b.expectsVotes() // before the votes are read
		_, votes := b.winners()
		token, known = votes.token(b.store.quorum)
		if known || complete {
			return token, known
		}
		select {
		case <-b.news:
		case <-timer.C:
			return token, false
		case <-ctx.Done():
			return token, false
		}
	}
}

func (b *ballot) failure(ctx context.Context, v verdict) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	reason := error(newShortage(b.store.nodes, b.store.quorum, b.votes))
	if cause := context.Cause(ctx); cause != nil && cause != errTimeout {
		reason = fmt.Errorf("%w: %w", cause, reason)
	}
	return b.votes.failure(b.claim.Key, v, b.store.quorum, reason)
}

// releaseGrant makes one node release a claim that it has granted. The caller has
// recorded the release with releaseSent. The release leaves no tombstone, because the
// same claim may be sent again.
func (s *Store) releaseGrant(ctx context.Context, n *node, c store.Claim, done func(error)) {
	brief := c
	brief.TTL, brief.Wait, brief.Keep = 0, false, 0
	s.call(ctx, n, func(ctx context.Context) error {
		return n.store.Release(ctx, brief)
	}, func(err error) {
		k := kindOf(err)
		// again is also true for a release that certainly did not reach the node. The
		// cleanup will send the release, and the claim must not be sent before that.
		again := k != granted && k != lost
		s.requests.releaseDone(&c, n.index, releaseOutcome{unknown: again && k != failed, again: again})
		if again {
			s.cleanup.now(c, n.index, true)
		}
		done(err)
	})
}
