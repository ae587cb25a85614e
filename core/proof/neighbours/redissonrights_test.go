package neighbours_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestSharedLocks_RightsOfJava shows that the rights in core/redisstore/README.md suffice for
// Redisson beside the kit. Without the right to its latch, an unlock by Redisson fails.
func TestSharedLocks_RightsOfJava(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../redisstore/README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("On one server the Java side needs `([^`]*)`").FindStringSubmatch(strings.Join(strings.Fields(string(page)), " "))
	if m == nil {
		t.Fatal("core/redisstore/README.md does not name the rights of the Java side")
	}
	const latch = "~redisson_unlock_latch:*"
	for _, version := range []string{neighbours.Redisson3, neighbours.Redisson4} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t)
			may := func(rights ...string) {
				args := []any{"ACL", "SETUSER", "java", "reset", "on", ">secret", "~order:*"}
				for _, r := range rights {
					args = append(args, r)
				}
				server.Do(args...)
			}
			may(strings.Fields(m[1])...)
			s := newShared(t, testclient.Redis(t, server.Addr), version, "java:secret@"+server.Addr)
			jane := s.java.Thread("jane")
			for _, kind := range []string{neighbours.RLock, neighbours.RFairLock, neighbours.RFencedLock, neighbours.RSpinLock} {
				name := "order:" + kind
				lease := s.goHolds(name)
				waits := jane.Begin("lock", kind, name, time.Duration(0))
				s.awaitListener(name, kind)
				s.release(lease)
				_, err := waits.Answer()
				s.must(err)
				s.goIsKeptOut(name)
				s.must(jane.Unlock(kind, name))
				s.release(s.goHolds(name))
			}
			testserver.Eventually(t, limit, "the latches are deleted", func() bool {
				return len(s.asks.Keys(t.Context(), "redisson_unlock_latch:*").Val()) == 0
			})
			got, err := jane.ForceUnlock(neighbours.RLock, "order:1")
			s.javaIs(false, got, err)
			may(strings.Fields(strings.ReplaceAll(m[1], latch, ""))...)
			s.must(jane.Lock(neighbours.RLock, "order:latch", time.Minute))
			if err := jane.Unlock(neighbours.RLock, "order:latch"); err == nil || !strings.Contains(err.Error(), "NOPERM") {
				t.Errorf("unlock without %s: got %v, want NOPERM", latch, err)
			}
			s.goIsKeptOut("order:latch")
		})
	}
}
