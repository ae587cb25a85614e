package redlock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// votes contains the answers of the nodes to one claim, by node.
type votes []vote

// vote is the answer of one node.
type vote struct {
	pending bool // a request is in flight, and no other field is set
	kind    kind // silent before the node is asked
	grant   store.Grant
	err     error
}

// answered reports whether the node has answered and its vote counts.
func (v vote) answered() bool {
	return !v.pending && (v.kind == granted || v.kind > uncounted && v.kind < failed)
}

// holds reports whether the node has granted the claim, even if its vote does not
// count.
func (v vote) holds() bool {
	return !v.pending && (v.kind == granted || v.kind == uncounted)
}

type verdict int

const (
	undecided  verdict = iota
	won                // a majority has granted the claim
	refused            // a majority has answered, but has not granted it
	noMajority         // too few nodes have answered
)

// verdict returns the result if no pending answer can change it, and undecided
// otherwise. It also returns the owner to whom most nodes have granted the claim. If
// late is set, a majority of answers is enough for a refusal, whatever the other nodes
// would answer.
func (vs votes) verdict(quorum int, late bool) (result verdict, owner string) {
	owners := make(map[string]int, 1)
	pending, answered, most := 0, 0, 0
	for _, v := range vs {
		if v.pending || v.kind == silent {
			pending++
			continue
		}
		if v.kind == granted {
			owners[v.grant.Owner]++
			if n := owners[v.grant.Owner]; n > most {
				most, owner = n, v.grant.Owner
			}
		}
		if v.answered() {
			answered++
		}
	}
	switch {
	case most >= quorum:
		return won, owner
	case most+pending >= quorum && !(late && answered >= quorum):
		return undecided, owner
	case answered >= quorum:
		return refused, owner
	case answered+pending < quorum:
		return noMajority, owner
	}
	return undecided, owner // the pending answers decide between refused and noMajority
}

func (vs votes) grantedTo(owner string) (some votes) {
	for _, v := range vs {
		if !v.pending && v.kind == granted && v.grant.Owner == owner {
			some = append(some, v)
		}
	}
	return some
}

// hasFirst reports whether the claim has the first of the nodes that granted it or
// answered that the key is busy. In a split vote, only one claim has the first node.
func (vs votes) hasFirst() bool {
	for _, v := range vs {
		if !v.pending && (v.kind == granted || v.kind == busy) {
			return v.kind == granted
		}
	}
	return false
}

// token returns a token that a majority has and that is a multiple of tokenStep. If
// there is no such token, it returns the highest token, and known is false.
func (vs votes) token(quorum int) (token uint64, known bool) {
	count, highest := make(map[uint64]int), uint64(0)
	for _, v := range vs {
		if t := v.grant.Token; t%tokenStep == 0 {
			count[t]++
		}
		highest = max(highest, v.grant.Token)
	}
	for t, n := range count {
		if n >= quorum {
			return t, true
		}
	}
	return highest, false
}

// failure returns the error of a vote that was not won. reason is the reason for the
// lack of a majority.
func (vs votes) failure(key string, result verdict, quorum int, reason error) error {
	var count [unknown + 1]int
	var first [unknown + 1]error
	pending := 0
	var pauses []time.Duration
	waiting := 0
	for _, v := range vs {
		if v.pending {
			pending++
			continue
		}
		count[v.kind]++
		if first[v.kind] == nil {
			first[v.kind] = v.err
		}
		var e *store.BusyError
		if errors.As(v.err, &e) {
			pauses = append(pauses, e.RetryAfter)
			waiting = max(waiting, e.Waiting)
		}
	}
	switch {
	case count[unsupported] > 0:
		return fmt.Errorf("redlock: acquire: %w", first[unsupported])
	case result == refused && count[lost] > len(vs)-quorum, result == refused && count[busy] == 0 && count[lost] > 0:
		return fmt.Errorf("redlock: acquire: released before: %w", store.ErrLost)
	case result == refused && count[invalid] > 0 && count[invalid]+count[granted] >= quorum:
		return fmt.Errorf("redlock: acquire: %w", first[invalid])
	case result == refused:
		e := &store.BusyError{Key: key, Waiting: waiting}
		if len(pauses) > 0 {
			e.RetryAfter = slices.Min(pauses)
		}
		return e
	}
	if count[granted]+count[uncounted]+count[unknown]+pending == 0 {
		return fmt.Errorf("redlock: acquire: %w: %w", store.ErrUnavailable, reason)
	}
	return &uncertain{op: "acquire", cause: reason}
}
