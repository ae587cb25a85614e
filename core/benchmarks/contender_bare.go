package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bareCommands returns the yardstick for the cost of a trip to the server: the two
// commands of the simplest lock. This lock does not wait, extend, or notify of a loss,
// and all holds even have the same owner. In scenarios with waiting, the goroutines
// pass a token instead.
func bareCommands() contender {
	return contender{name: "bare commands", kind: Bare,
		about:  "SET NX PX, and a script that compares and deletes; to wait, BLPOP of a token that RPUSH returns, which nobody owns and which never expires; for once two scripts by hand, without attempt, fingerprint or extension",
		direct: []string{"set", "blpop", "rpush"},
		open:   openBare}
}

var (
	bareRelease = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
	bareBegin   = redis.NewScript(`
local kept = redis.call('get', KEYS[1])
if kept then return kept end
redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
return false`)
	bareFinish = redis.NewScript(`
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], ARGV[2], 'px', ARGV[3])
return 1`)
)

const bareOwner = "owner"

type bareLease struct {
	client *redis.Client
	key    string
}

func (b *bareLease) Release(ctx context.Context) error {
	return bareRelease.Run(ctx, b.client, []string{b.key}, bareOwner).Err()
}

// token is the right to continue, which goroutines pass to each other in the server.
type token struct {
	client *redis.Client
	key    string
}

func (t *token) Release(ctx context.Context) error {
	return t.client.RPush(ctx, t.key, "token").Err()
}

// tokens creates and receives the tokens of one process.
type tokens struct {
	client *redis.Client
	made   sync.Map // the keys whose first token exists
}

func (t *tokens) pass(ctx context.Context, key string) (lease, error) {
	if _, made := t.made.Load(key); !made {
		err := t.client.SetArgs(ctx, key+":made", "1", redis.SetArgs{Mode: "NX"}).Err()
		if err != nil && err != redis.Nil {
			return nil, err
		}
		t.made.Store(key, true)
		if err == nil {
			return &token{t.client, key}, nil // the first token
		}
	}
	if err := t.client.BLPop(ctx, 0, key).Err(); err != nil {
		return nil, err
	}
	return &token{t.client, key}, nil
}

// bareDetached is bareCommands for a caller with a context that can be canceled. The
// first command runs in a separate goroutine, and the caller waits for the command or
// for the context. go-redis itself waits for the server's reply even if the context is
// canceled.
func bareDetached() contender {
	return contender{name: "bare, cancellable", kind: Bare, direct: []string{"set"}, open: func(o opening) (*locks, error) {
		bare, err := openBare(o)
		if err != nil {
			return nil, err
		}
		return &locks{close: bare.close, try: func(ctx context.Context, key string) (lease, error) {
			var held lease
			done := make(chan error, 1)
			go func() {
				var err error
				held, err = bare.try(ctx, key)
				done <- err
			}()
			select {
			case err := <-done:
				return held, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}, nil
	}}
}

func openBare(o opening) (*locks, error) {
	client := goRedis(o)
	passing := &tokens{client: client}
	return &locks{
		pass: passing.pass,
		try: func(ctx context.Context, key string) (lease, error) {
			if err := client.SetArgs(ctx, key, bareOwner, redis.SetArgs{Mode: "NX", TTL: ttl}).Err(); err != nil {
				return nil, err
			}
			return &bareLease{client, key}, nil
		},
		once: func(ctx context.Context, key string, answer []byte) error {
			err := bareBegin.Run(ctx, client, []string{key}, bareOwner, ttl.Milliseconds()).Err()
			if err != redis.Nil {
				return err
			}
			return bareFinish.Run(ctx, client, []string{key}, bareOwner, answer, (24 * time.Hour).Milliseconds()).Err()
		},
		close: client.Close,
	}, nil
}
