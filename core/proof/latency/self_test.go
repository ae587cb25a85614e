package latency_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// unlocked is a place whose lock does nothing: it grants every claim.
type unlocked struct{ tokens atomic.Uint64 }

func (p *unlocked) open(testing.TB) (locks, kept core.Store) { return p, nil }

func (p *unlocked) impair(fault) {}

func (p *unlocked) toll() testserver.Toll { return testserver.Toll{} }

// Acquire implements store.Store.
func (p *unlocked) Acquire(_ context.Context, c store.Claim) (store.Grant, error) {
	return store.Grant{Owner: c.Owner, Token: p.tokens.Add(store.TokenStep)}, nil
}

// Extend implements store.Store.
func (p *unlocked) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	return make([]store.Extension, len(claims))
}

// Release implements store.Store.
func (p *unlocked) Release(context.Context, store.Claim) error { return nil }

type inMemory struct {
	unlocked
	locks, kept core.Store
}

func (p *inMemory) open(testing.TB) (locks, kept core.Store) { return p.locks, p.kept }

// TestSelf_LockRemoved checks that the judges find a lock that does nothing, even if one
// response is stored for each key. It also checks that they find no fault with a correct
// lock.
func TestSelf_LockRemoved(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for name, p := range map[string]place{"no lock": &unlocked{}, "no lock, stored responses": &inMemory{locks: &unlocked{}, kept: s}} {
		if v := play(t, p, fault{}, 2); v.wrong[twice] == 0 {
			t.Errorf("%s: got %v, want %s", name, v.faults(), twice)
		}
	}
	if v := play(t, &inMemory{locks: s, kept: s}, fault{}, 1); len(v.faults()) > 0 {
		t.Errorf("in memory: got %v, want none: %v", v.faults(), v.details)
	}
}

// TestSelf_Judge checks that the judges find each kind of violation.
func TestSelf_Judge(t *testing.T) {
	t.Parallel()
	paid := try{id: "a", order: "o", status: http.StatusOK, receipt: receipt("o", 1)}
	busy := try{id: "b", order: "o", status: http.StatusConflict, kind: "lock-busy", pause: time.Second}
	for name, c := range map[string]struct {
		want    string
		charges int
		lost    bool // the order is not marked as paid
		ran     []string
		tries   []try
		served  bool
	}{
		"nothing wrong":      {charges: 1, ran: []string{"a"}, tries: []try{paid, busy}, served: true},
		"charged twice":      {want: twice, charges: 2, tries: []try{paid}, served: true},
		"order not paid":     {want: noReceipt, charges: 1, lost: true, tries: []try{paid}, served: true},
		"no user has it":     {want: noReceipt, charges: 1, tries: []try{busy}, served: true},
		"receipt of nothing": {want: falsely, tries: []try{paid}, served: true},
		"other receipt": {want: falsely, charges: 1, tries: []try{
			paid, {order: "o", status: http.StatusOK, receipt: receipt("o", 2)},
		}, served: true},
		"internal error": {want: unknown, charges: 1, tries: []try{
			paid, {order: "o", status: http.StatusInternalServerError, kind: "lock-failed", pause: time.Second},
		}, served: true},
		"no Retry-After": {want: unknown, charges: 1, tries: []try{
			paid, {order: "o", status: http.StatusServiceUnavailable, kind: "lock-unavailable"},
		}, served: true},
		"no response":         {want: unknown, charges: 1, tries: []try{paid, {order: "o", err: context.Canceled}}, served: true},
		"refused and run":     {want: worked, charges: 1, ran: []string{"b"}, tries: []try{paid, busy}, served: true},
		"user without answer": {want: unserved, charges: 1, tries: []try{paid, busy}},
	} {
		l, u := newLedger(), &users{tries: c.tries}
		for _, id := range c.ran {
			l.begin(id, "o")
		}
		for range c.charges {
			l.charge("o")
		}
		if c.charges > 0 && !c.lost {
			l.finish("o", receipt("o", 1))
		}
		if !c.served {
			u.unserved = []string{"o"}
		}
		got := judge(l, u).faults()
		if c.want == "" && len(got) > 0 || c.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, c.want) }) {
			t.Errorf("%s: got %v, want %q", name, got, c.want)
		}
	}
}

func TestSelf_Percentile(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	if got := percentile(all, 50); got != 0 {
		t.Errorf("of none: got %v, want 0", got)
	}
	for i := range 100 {
		all = append(all, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{50: 50, 99: 99, 100: 100} {
		if got := percentile(all, p); got != want {
			t.Errorf("%d of 100: got %v, want %v", p, got, want)
		}
	}
	if got := percentile(all[:3], 99); got != 3 {
		t.Errorf("of three: got %v, want 3", got)
	}
}
