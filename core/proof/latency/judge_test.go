package latency_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// known lists the kinds of problems that a user may receive, each with its HTTP status.
// After each of them the user may send the same request again.
var known = map[string]int{
	"lock-busy":               http.StatusConflict,
	"idempotency-in-progress": http.StatusConflict,
	"lock-unavailable":        http.StatusServiceUnavailable,
	"lock-timeout":            http.StatusServiceUnavailable,
	"idempotency-unavailable": http.StatusServiceUnavailable,
	"idempotency-timeout":     http.StatusServiceUnavailable,
	lostType:                  http.StatusServiceUnavailable,
}

// The kinds of violations.
const (
	twice     = "double charges"
	noReceipt = "payments without their receipt"
	falsely   = "receipts of no payment"
	unknown   = "answers of no known kind"
	worked    = "refused requests that ran"
	unserved  = "users without a receipt"
)

type verdict struct {
	wrong   map[string]int // number of violations by kind
	details []string
	seen    view
}

// view sums up the answers that users received.
type view struct {
	P50, P99                       time.Duration // response times of all answers
	Answers, Paid, Refused, Failed int
}

func (v view) share(n int) float64 { return 100 * float64(n) / float64(max(1, v.Answers)) }

// judge compares the answers that users received with the ledger.
func judge(l *ledger, u *users) *verdict {
	v := &verdict{wrong: map[string]int{twice: 0, noReceipt: 0, falsely: 0, unknown: 0, worked: 0, unserved: 0}}
	for _, order := range l.orders() {
		charges, stored := l.of(order)
		if charges > 1 {
			v.add(twice, "%s was charged %d times", order, charges)
		}
		if stored == "" {
			v.add(noReceipt, "%s was charged, and is not paid", order)
		}
	}
	got := make(map[string]bool) // orders for which a user has a receipt
	var took []time.Duration
	for _, t := range u.tries {
		if t.status > 0 {
			took = append(took, t.took)
		}
		switch {
		case t.err == nil && t.status == http.StatusOK && t.receipt != "":
			got[t.order] = true
			v.seen.Paid++
			if charges, stored := l.of(t.order); charges == 0 || t.receipt != stored && charges == 1 {
				v.add(falsely, "%v, the ledger has %d charges and %q", t, charges, stored)
			}
			continue
		case t.err != nil || t.pause <= 0 || t.receipt != "" || known[t.kind] != t.status:
			v.add(unknown, "%v", t)
		case t.status == http.StatusConflict:
			v.seen.Refused++
		default:
			v.seen.Failed++
		}
		if t.kind != lostType && l.handled(t.id) {
			v.add(worked, "%v, and its handler ran", t)
		}
	}
	for _, order := range l.orders() {
		if !got[order] {
			v.add(noReceipt, "%s was charged, and no user has its receipt", order)
		}
	}
	for _, order := range u.unserved {
		v.add(unserved, "%s after %d tries", order, maxTries)
	}
	slices.Sort(took)
	v.seen.Answers, v.seen.P50, v.seen.P99 = len(took), percentile(took, 50), percentile(took, 99)
	return v
}

func (v *verdict) add(what, format string, args ...any) {
	v.wrong[what]++
	v.details = append(v.details, what+": "+fmt.Sprintf(format, args...))
}

func (v *verdict) faults() []string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(v.wrong)) {
		if n := v.wrong[what]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, what))
		}
	}
	return all
}

// percentile returns the p-th percentile of the sorted times (nearest rank), or 0 if
// there are none.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}
