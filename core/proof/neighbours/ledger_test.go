package neighbours_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// standstill is the shortest gap in a leader's work that counts as a pause of its
// process. It is half of the difference between LeaseDuration and RenewDeadline in
// golang/clientgo.
const standstill = 750 * time.Millisecond

// ledger is the resource to which the leaders of an election write. It refuses a write
// if the write's number of transitions, or the write's token, is smaller than the
// greatest accepted number or token. It also judges the leaders' terms.
type ledger struct {
	url string

	mu                 sync.Mutex
	writes             int // number of accepted writes
	transitions, token uint64
	terms              []*term
	byName             map[string]*term
}

// term is one term of a leader, as the leader's writes have reported it. All processes
// use one clock.
type term struct {
	who, release string
	first, last  int64 // first and last time at which the leader saw that it leads
	gap          int64 // longest pause in which another replica may have begun to lead
	begins, ends int   // numbers of its first and last accepted write
	left         bool  // the work has returned
}

func newLedger(t *testing.T) *ledger {
	l := &ledger{byName: make(map[string]*term)}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

// ServeHTTP handles a leader's report: a write, or the end of its term.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) uint64 {
		n, err := strconv.ParseUint(r.PostFormValue(name), 10, 63)
		if err != nil && r.PostFormValue(name) != "" {
			panic(err)
		}
		return n
	}
	name, at := r.PostFormValue("who")+" "+r.PostFormValue("term"), int64(number("at"))
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.byName[name]
	if t == nil {
		t = &term{who: r.PostFormValue("who"), release: r.PostFormValue("release"), first: at}
		l.terms, l.byName[name] = append(l.terms, t), t
	}
	if r.PostFormValue("left") != "" {
		t.left = true
		return
	}
	if t.last = at; at == t.first || t.release == "client-go" {
		t.gap = max(t.gap, int64(number("gap")))
	}
	for column, stored := range map[string]*uint64{"transitions": &l.transitions, "token": &l.token} {
		if r.PostForm.Has(column) && number(column) < *stored {
			w.WriteHeader(http.StatusConflict)
			return
		}
	}
	l.transitions, l.token = max(l.transitions, number("transitions")), max(l.token, number("token"))
	l.writes++
	t.ends = l.writes
	if t.begins == 0 {
		t.begins = l.writes
	}
}

// await waits for an accepted write with a number above the number after, by a process
// whose name differs from the name not. It returns the term of that write.
func (l *ledger) await(t *testing.T, after int, not string) (next *term) {
	t.Helper()
	testserver.Eventually(t, limit, "another one leads than "+not, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, x := range l.terms {
			if x.ends > after && x.who != not {
				next = x
			}
		}
		return next != nil
	})
	return next
}

func (l *ledger) awaitEnd(t *testing.T, x *term) {
	t.Helper()
	testserver.Eventually(t, limit, "the work of "+x.who+" has returned", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return x.left
	})
}

func (l *ledger) last() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// judge checks each pair of terms. wrong lists the violations, and allowed counts the
// pairs in which client-go was permitted to let two replicas lead.
//
//   - No write of a term is accepted after a write of a later term.
//   - Two replicas with the kit's lock never lead at the same time, whatever is paused.
//   - A replica with client-go alone leads beside another replica only after a pause.
//     Either the first replica was paused in its term, or the second replica was paused
//     between reading the Lease and checking its context for the first time.
func (l *ledger) judge() (wrong []string, allowed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, a := range l.terms {
		for _, b := range l.terms[i+1:] {
			pair := fmt.Sprintf("%s and %s", a.who, b.who)
			if a.begins > 0 && b.begins > 0 && a.begins <= b.ends && b.begins <= a.ends {
				wrong = append(wrong, pair+": accepted in turns")
			}
			switch {
			case a.first > b.last || b.first > a.last:
			case a.release != "client-go" && b.release != "client-go", max(a.gap, b.gap) < int64(standstill):
				wrong = append(wrong, fmt.Sprintf("%s: both lead, for %v", pair, time.Duration(min(a.last, b.last)-max(a.first, b.first))))
			default:
				allowed++
			}
		}
	}
	return wrong, allowed
}
