package inspect_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestPageOnZooKeeper checks that the page works on ZooKeeper as on other stores,
// although the names of zkstore's nodes have only digests of owners and leases.
func TestPageOnZooKeeper(t *testing.T) {
	t.Parallel()
	st := newZooKeeper(t)
	var entries []inspect.Entry
	h := inspect.Handler(newInspector(t, st), all("ann"), inspect.Audit(func(_ context.Context, e inspect.Entry) error {
		entries = append(entries, e)
		return nil
	}))
	get(h, "").want(t, 200)
	if page := get(h, "view=list&format=json").want(t, 200).json(t); len(page.Locks) != 0 || page.Next != "" {
		t.Errorf("a store of no locks shows %+v", page)
	}
	l := newLocker(t, st)
	lease := acquire(t, l, "order:1", core.TTL(5*time.Second))
	other := acquire(t, l, "order:2")
	waited, stop := context.WithCancel(t.Context())
	waiting := make(chan struct{})
	go func() {
		defer close(waiting)
		newLocker(t, st).Acquire(waited, "order:1", core.TTL(time.Minute))
	}()
	defer func() { stop(); <-waiting }()
	state, err := st.Look(t.Context(), "order:1")
	if err != nil || len(state.Holds) != 1 || state.Holds[0].Process == "" {
		t.Fatalf("got %+v, %v", state, err)
	}
	card := core.Card{Process: state.Holds[0].Process, Service: "payments", Host: "host-7", Entries: []store.CardEntry{{Name: "order", Hold: lease.ID(), Key: "order:1", For: time.Minute}}}
	if err := st.Put(t.Context(), card, time.Hour); err != nil {
		t.Fatal(err)
	}
	lookUp := func(key string) shownLock {
		t.Helper()
		return *post(h, "view=lock&format=json", url.Values{"key": {key}}).want(t, 200).json(t).Lock
	}

	var seen shownLock
	testserver.Eventually(t, time.Minute, "the waiter is seen", func() bool {
		seen = lookUp("order:1")
		return len(seen.Waiters) == 1
	})
	if len(seen.Holds) != 1 || seen.Holds[0].ID != lease.ID() || seen.Holds[0].Process == nil || seen.Holds[0].Process.Host != "host-7" ||
		seen.Holds[0].Left <= 0 || seen.Holds[0].Left > 5000 || seen.Waiters[0].ID == lease.ID() {
		t.Errorf("looked up is %+v", seen)
	}
	if now := get(h, "format=json").want(t, 200).json(t); len(now.Held) != 1 || now.Held[0].Key != "order:1" || now.Held[0].Hold != lease.ID() {
		t.Errorf("held for long is %+v", now)
	}
	listed := make(map[string]string)
	for _, row := range get(h, "view=list&format=json").want(t, 200).json(t).Locks {
		listed[row.Key] = row.Sealed
	}
	if len(listed) != 2 {
		t.Fatalf("listed is %v", listed)
	}
	body := get(h, "view=list").want(t, 200).body
	if got := keysOf(body); len(got) != 2 || !slices.Contains(got, "order:1") || !slices.Contains(got, "order:2") {
		t.Errorf("the page lists %q", got)
	}

	// After a revoke of a lock from the list, the lock's holder is notified and its key
	// stays taken.
	form := url.Values{"lock": {listed["order:1"]}, "hold": {lease.ID()}, "confirm": {lease.ID()}}
	body = post(h, "view=revoke", form).want(t, 200).body
	if !strings.Contains(body, "Revoked.") || !strings.Contains(body, "rest of a revoked hold") {
		t.Errorf("after the revoke: %s", body)
	}
	for _, view := range []string{"revoke", "release"} {
		if s := post(h, "view="+view+"&format=json", form).want(t, http.StatusConflict).json(t); !strings.Contains(s.Error, "Nothing has changed") {
			t.Errorf("a second %s got %q", view, s.Error)
		}
	}
	<-lease.Context().Done()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, core.ErrLost) {
		t.Errorf("the holder got the cause %v", cause)
	}
	testserver.Eventually(t, time.Minute, "the waiter has the key", func() bool {
		seen = lookUp("order:1")
		return len(seen.Holds) == 1 && seen.Holds[0].ID != "" && len(seen.Waiters) == 0
	})

	form = url.Values{"lock": {listed["order:2"]}, "hold": {other.ID()}}
	if s := post(h, "view=release&format=json", form).want(t, 200).json(t); s.Confirm == nil || s.Confirm.Hold.ID != other.ID() || len(lookUp("order:2").Holds) != 1 {
		t.Errorf("it does not ask again: %+v", s)
	}
	form.Set("confirm", other.ID())
	post(h, "view=release", form).want(t, 200)
	if left := lookUp("order:2"); len(left.Holds) != 0 {
		t.Errorf("after a release there is %+v", left)
	}
	want := []inspect.Entry{
		{Action: inspect.RevokeHold, Who: "ann", Name: "order", Key: "order:1", Hold: lease.ID()},
		{Action: inspect.RevokeHold, Who: "ann", Name: "order", Key: "order:1", Hold: lease.ID()},
		{Action: inspect.ReleaseNow, Who: "ann", Name: "order", Key: "order:1", Hold: lease.ID()},
		{Action: inspect.ReleaseNow, Who: "ann", Name: "order", Key: "order:2", Hold: other.ID()},
	}
	if !slices.Equal(entries, want) {
		t.Errorf("the audit has %+v", entries)
	}
}
