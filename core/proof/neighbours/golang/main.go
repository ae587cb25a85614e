// Command golang drives lock libraries in Go. driver.go of package neighbours describes
// the lines of its input and output. The command has its own module, so that the
// libraries stay out of the kit's go.mod.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// held is a lock that one of the libraries holds.
type held struct {
	extend, unlock func(ctx context.Context, ttl time.Duration) error
	gone           func() bool // whether the library has noticed the loss; nil if it never does
}

var errBusy = errors.New("busy")

// locker tries once to take a lock. It returns errBusy if the lock is held.
type locker func(ctx context.Context, name string, ttl time.Duration) (held, error)

func main() {
	var pools []redsyncredis.Pool
	var first redis.UniversalClient
	for _, addr := range os.Args[1:] {
		client := redis.NewClient(&redis.Options{Addr: addr})
		pools = append(pools, goredis.NewPool(client))
		if first == nil {
			first = client
		}
	}
	lockers := map[string]locker{
		"redsync":       redsyncLocker(redsync.New(pools...)),
		"redislock":     redislockLocker(redislock.New(first)),
		"rueidislock":   rueidisLocker(os.Args[1], 2),
		"rueidislock-1": rueidisLocker(os.Args[1], 1),
	}
	threads := make(map[string]chan []string)
	fmt.Println("0 ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if threads[words[1]] == nil {
			threads[words[1]] = make(chan []string, 100)
			go serve(lockers, threads[words[1]])
		}
		threads[words[1]] <- words
	}
}

var output sync.Mutex

// serve answers the commands of one thread, the WHO of their lines.
func serve(lockers map[string]locker, commands <-chan []string) {
	locks := make(map[string]held)
	for words := range commands {
		text, err := run(lockers, locks, words[2], words[3], words[4], words[5:]...)
		if err != nil {
			text = "error " + class(err) + " " + err.Error()
		}
		output.Lock()
		fmt.Println(words[0], strings.Join(strings.Fields(text), " "))
		output.Unlock()
	}
}

func class(err error) string {
	var taken *redsync.ErrTaken
	switch {
	case errors.As(err, &taken):
		return "ErrTaken"
	case errors.Is(err, redsync.ErrLockAlreadyExpired):
		return "ErrLockAlreadyExpired"
	case errors.Is(err, redsync.ErrExtendFailed):
		return "ErrExtendFailed"
	case errors.Is(err, redislock.ErrNotObtained):
		return "ErrNotObtained"
	case errors.Is(err, redislock.ErrLockNotHeld):
		return "ErrLockNotHeld"
	}
	return "error"
}

func run(lockers map[string]locker, locks map[string]held, verb, client, name string, args ...string) (string, error) {
	ctx := context.Background()
	var ttl time.Duration
	if len(args) > 0 {
		ms, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		ttl = time.Duration(ms) * time.Millisecond
	}
	key := client + " " + name
	switch verb {
	case "trylock":
		l, err := lockers[client](ctx, name, ttl)
		if errors.Is(err, errBusy) {
			return "no", nil
		}
		if err == nil {
			locks[key] = l
		}
		return "yes", err
	case "extend":
		return "done", locks[key].extend(ctx, ttl)
	case "unlock":
		return "done", locks[key].unlock(ctx, ttl)
	case "gone":
		if locks[key].gone() {
			return "yes", nil
		}
		return "no", nil
	}
	return "", fmt.Errorf("no verb %s", verb)
}

func redsyncLocker(rs *redsync.Redsync) locker {
	return func(ctx context.Context, name string, ttl time.Duration) (held, error) {
		m := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(1))
		var taken *redsync.ErrTaken
		if err := m.TryLockContext(ctx); errors.As(err, &taken) {
			return held{}, errBusy
		} else if err != nil {
			return held{}, err
		}
		checked := func(do func(context.Context) (bool, error)) func(context.Context, time.Duration) error {
			return func(ctx context.Context, _ time.Duration) error {
				ok, err := do(ctx)
				if err == nil && !ok {
					return errors.New("redsync: false")
				}
				return err
			}
		}
		return held{extend: checked(m.ExtendContext), unlock: checked(m.UnlockContext)}, nil
	}
}

func redislockLocker(c *redislock.Client) locker {
	return func(ctx context.Context, name string, ttl time.Duration) (held, error) {
		l, err := c.Obtain(ctx, name, ttl, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return held{}, errBusy
		}
		if err != nil {
			return held{}, err
		}
		return held{
			extend: func(ctx context.Context, ttl time.Duration) error { return l.Refresh(ctx, ttl, nil) },
			unlock: func(ctx context.Context, _ time.Duration) error { return l.Release(ctx) },
		}, nil
	}
}

// rueidisLocker returns a locker that makes a rueidislock.Locker for each TTL, because
// all locks of a rueidislock.Locker have the same TTL.
func rueidisLocker(addr string, majority int32) locker {
	var mu sync.Mutex
	all := make(map[time.Duration]rueidislock.Locker)
	return func(ctx context.Context, name string, ttl time.Duration) (held, error) {
		mu.Lock()
		l := all[ttl]
		if l == nil {
			var err error
			l, err = rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: majority, KeyValidity: ttl, TryNextAfter: 10 * time.Second,
			})
			if err != nil {
				mu.Unlock()
				return held{}, err
			}
			all[ttl] = l
		}
		mu.Unlock()
		ctx, cancel, err := l.TryWithContext(ctx, name)
		if errors.Is(err, rueidislock.ErrNotLocked) {
			return held{}, errBusy
		}
		if err != nil {
			return held{}, err
		}
		return held{
			extend: func(context.Context, time.Duration) error { return errors.New("rueidislock extends by itself") },
			unlock: func(context.Context, time.Duration) error { cancel(); return nil },
			gone:   func() bool { return ctx.Err() != nil },
		}, nil
	}
}
