package neighbours_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/neighbours"
	"github.com/lockkit/lockkit/core/redisstore"
)

// holderOf names the environment variable that makes the test's program a holder of
// Redisson's locks with the kit. Its value is the address of the server.
const holderOf = "LOCKKIT_NEIGHBOURS_HOLDER"

// startHolder starts a process with the kit, which obeys the commands of a Driver:
// "lock" with a name and a TTL in milliseconds, and "unlock" with a name. The answer of
// "unlock" is "released" or "lost".
func startHolder(t *testing.T, addr string) *neighbours.Driver {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(cmd.Environ(), holderOf+"="+addr)
	return neighbours.Start(t, cmd)
}

// serveHolder runs in the process that startHolder starts.
func serveHolder(addr string) {
	s, err := redisstore.New(redis.NewClient(&redis.Options{Addr: addr}), redisstore.WithRedisson())
	if err != nil {
		panic(err)
	}
	locks, err := core.New(s)
	if err != nil {
		panic(err)
	}
	held := make(map[string]*core.Lease)
	run := func(verb string, args []string) (string, error) {
		switch verb {
		case "lock":
			ms, err := strconv.Atoi(args[1])
			if err != nil {
				return "", err
			}
			lease, err := locks.Acquire(context.Background(), args[0], core.TTL(time.Duration(ms)*time.Millisecond))
			held[args[0]] = lease
			return "done", err
		case "unlock":
			err := held[args[0]].Release(context.Background())
			if errors.Is(err, core.ErrLost) {
				return "lost", nil
			}
			return "released", err
		}
		return "", fmt.Errorf("no verb %s", verb)
	}
	fmt.Println("0 ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		text, err := run(words[2], words[3:])
		if err != nil {
			text = "error error " + strings.Join(strings.Fields(err.Error()), " ")
		}
		fmt.Println(words[0], text)
	}
}

// goDies pauses a process of the kit for longer than the TTL of its lock, and later
// kills the process. Each time, the process holds a lock for which Redisson waits.
func goDies(s *shared, addr string) {
	s.t.Helper()
	const ttl, kind = 5 * time.Second, neighbours.RLock
	jane, joe := s.java.Thread("jane"), s.java.Thread("joe")
	holder := startHolder(s.t, addr)
	hold := func(name string) *neighbours.Call {
		_, err := holder.Ask("go", "lock", name, ttl)
		s.must(err)
		got, err := jane.TryLockNow(kind, name)
		s.javaIs(false, got, err)
		waits := jane.Begin("lock", kind, name, 5*time.Minute)
		s.awaitListener(name, kind)
		return waits
	}

	waits := hold("frozen-there")
	holder.Pause()
	_, err := waits.Answer() // Redisson has the lock
	s.must(err)
	holder.Resume()
	if got, err := holder.Ask("go", "unlock", "frozen-there"); got != "lost" || err != nil {
		s.t.Errorf("release after the pause: got %q, %v, want lost", got, err)
	}
	if held, err := jane.Held(kind, "frozen-there"); !held || err != nil {
		s.t.Errorf("the late release has released the other's: %v, %v", held, err)
	}
	got, err := joe.TryLockNow(kind, "frozen-there")
	s.javaIs(false, got, err)
	s.must(jane.Unlock(kind, "frozen-there"))

	waits = hold("killed-there")
	begin := time.Now()
	left := s.asks.PTTL(s.t.Context(), "killed-there").Val()
	holder.Kill()
	_, err = waits.Answer()
	s.must(err)
	if took := time.Since(begin); took < left-10*time.Millisecond {
		s.t.Errorf("Redisson entered after %v, while the hold of the killed process had %v left", took, left)
	}
	s.goIsKeptOut("killed-there")
	s.must(jane.Unlock(kind, "killed-there"))
}
