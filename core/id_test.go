package core_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

func TestLeaseIDs(t *testing.T) {
	t.Parallel()
	// A lease ID consists of the characters of the process and 26 random characters.
	sim(t, "process and random letters", func(t *testing.T) {
		processes, rest := map[string]int{}, map[string]bool{}
		for range 2 {
			l, s := setup(t)
			for range 50 {
				lease := acquire(t, t.Context(), l, "order:1")
				if owner, _, _ := strings.Cut(lease.Owner(), "."); owner != s.sent(opAcquire)[0].claims[0].Lease {
					t.Fatalf("owner %s is not the lease", owner)
				}
				if strings.Contains(lease.Owner(), lease.ID()) {
					t.Fatal("the hold's ID is a part of the owner")
				}
				release(t, lease)
				s.forget()
			}
			for range 50 {
				release(t, acquire(t, t.Context(), l, "order:1"))
			}
			for _, c := range s.sent(opAcquire) {
				id := c.claims[0].Lease
				if !regexp.MustCompile("^[A-Z2-7]{34}$").MatchString(id) {
					t.Fatalf("a lease is %s", id)
				}
				processes[store.ProcessOf(id)]++
				rest[id[8:]] = true
			}
		}
		if len(processes) != 2 || len(rest) != 100 {
			t.Errorf("%d processes and %d leases, want 2 and 100", len(processes), len(rest))
		}
		for p, n := range processes {
			if len(p) != 8 || n != 50 {
				t.Errorf("process %q has %d leases", p, n)
			}
		}
	})
	// After a lease has passed its hold on, its Owner begins with an ID of the same
	// form.
	sim(t, "owner of a passed hold", func(t *testing.T) {
		l := newLocker(t, memstore.New())
		lease := acquire(t, t.Context(), l, "order:1")
		go l.Acquire(t.Context(), "order:1")
		synctest.Wait()
		release(t, lease)
		owner, _, _ := strings.Cut(lease.Owner(), ".")
		if store.ProcessOf(owner) == "" {
			t.Errorf("got owner %s", lease.Owner())
		}
		synctest.Wait()
		closeNow(l)
	})
	t.Run("other form has no process", func(t *testing.T) {
		t.Parallel()
		for _, lease := range []string{"", "abc", strings.Repeat("A", 33), strings.Repeat("A", 35), strings.Repeat("a", 34), strings.Repeat("A", 33) + " ", strings.Repeat("A", 33) + "1"} {
			if p := store.ProcessOf(lease); p != "" {
				t.Errorf("%q is of process %q", lease, p)
			}
		}
		if p := store.ProcessOf("ABCDEFGH" + strings.Repeat("7", 26)); p != "ABCDEFGH" {
			t.Errorf("got %q", p)
		}
	})
}
