package once_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

func newExample(opts ...once.Option) *once.Once {
	// Use a store of core/redisstore for more than one process.
	locks, err := core.New(memstore.New())
	if err != nil {
		panic(err)
	}
	o, err := once.New(locks, opts...)
	if err != nil {
		panic(err)
	}
	return o
}

func ExampleOnce_Do() {
	charges := newExample()
	pay := func(ctx context.Context, key, body string) {
		print := sha256.Sum256([]byte(body))
		out, err := charges.Do(ctx, once.Call{Name: "charge", Scope: "tenant 7", Key: key, Fingerprint: print[:]},
			func(ctx context.Context) (once.Answer, error) {
				fmt.Println("charging", body)
				return once.Answer{Value: []byte("receipt 1")}, nil
			})
		fmt.Printf("%s, replayed: %v, error: %v\n", out.Value, out.Replayed, err)
	}
	ctx := context.Background()
	pay(ctx, "8f14e45f", "10 EUR")
	pay(ctx, "8f14e45f", "10 EUR")   // the client has timed out and retries
	pay(ctx, "8f14e45f", "1000 EUR") // a mistake of the client
	// Output:
	// charging 10 EUR
	// receipt 1, replayed: false, error: <nil>
	// receipt 1, replayed: true, error: <nil>
	// , replayed: false, error: once: do "charge": lockkit: key was used with another request
}

func ExampleGuard() {
	type request struct{ Order, Amount string }
	type receipt struct{ Number int }
	number := 0
	pay := once.Guard(newExample(),
		func(r request) (once.Call, error) {
			return once.Call{Name: "charge", Key: r.Order, Fingerprint: []byte(r.Amount)}, nil
		},
		func(ctx context.Context, r request) (receipt, error) {
			number++
			return receipt{number}, nil
		})
	for range 3 {
		fmt.Println(pay(context.Background(), request{"42", "10 EUR"}))
	}
	// Output:
	// {1} <nil>
	// {1} <nil>
	// {1} <nil>
}

func ExampleAttemptFromContext() {
	charges := newExample()
	for range 2 {
		out, err := charges.Do(context.Background(), once.Call{Name: "charge", Key: "42"},
			func(ctx context.Context) (once.Answer, error) {
				if n, _ := once.AttemptFromContext(ctx); n > 1 {
					// An earlier attempt may have had its effect, so ask the provider
					// first.
					return once.Answer{Value: []byte("receipt that the provider still had")}, nil
				}
				return once.Answer{}, errors.New("connection to the provider lost")
			})
		fmt.Printf("attempt %d: %q %v\n", out.Attempt, out.Value, err)
	}
	// Output:
	// attempt 1: "" connection to the provider lost
	// attempt 2: "receipt that the provider still had" <nil>
}

func ExampleAtMostOnce() {
	transfers := newExample(once.AtMostOnce(), once.Retain(7*24*time.Hour))
	for range 2 {
		_, err := transfers.Do(context.Background(), once.Call{Name: "transfer", Key: "42"},
			func(ctx context.Context) (once.Answer, error) {
				fmt.Println("transferring")
				return once.Answer{}, fmt.Errorf("bank timed out: %w", once.ErrIndeterminate)
			})
		fmt.Println(err)
	}
	// Output:
	// transferring
	// bank timed out: lockkit: outcome of the run is unknown
	// once: do "transfer": lockkit: outcome of the run is unknown
}

func ExampleAcquire() {
	// Duplicates wait up to 5s for the answer of the run in progress, and return it. A
	// process that dies keeps the call in progress for at most 10s.
	charges := newExample(once.Acquire(core.Wait(5*time.Second), core.TTL(10*time.Second)))
	answers := make(chan string)
	for range 3 {
		go func() {
			out, err := charges.Do(context.Background(), once.Call{Name: "charge", Key: "42"},
				func(ctx context.Context) (once.Answer, error) {
					time.Sleep(10 * time.Millisecond)
					return once.Answer{Value: []byte("receipt 1")}, nil
				})
			answers <- fmt.Sprintf("%s %v", out.Value, err)
		}()
	}
	for range 3 {
		fmt.Println(<-answers)
	}
	// Output:
	// receipt 1 <nil>
	// receipt 1 <nil>
	// receipt 1 <nil>
}
