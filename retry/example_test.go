package retry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/retry"
)

func ExampleDo() {
	runs := 0
	port, err := retry.Do(context.Background(), retry.Hiccup, func(ctx context.Context) (int, error) {
		if runs++; runs < 3 {
			return 0, errors.New("connection refused")
		}
		return 6379, nil
	})
	fmt.Println(port, err, "after", runs, "attempts")
	// Output: 6379 <nil> after 3 attempts
}

func ExampleStop() {
	errPassword := errors.New("wrong password")
	runs := 0
	_, err := retry.Do(context.Background(), retry.LockWait, func(ctx context.Context) (string, error) {
		runs++
		return "", retry.Stop(errPassword) // another attempt is useless
	})
	fmt.Println(err == errPassword, "after", runs, "attempt")
	// Output: true after 1 attempt
}

func ExampleAfter() {
	start, runs := time.Now(), 0
	_, err := retry.Do(context.Background(), retry.Policy{Initial: time.Millisecond}, func(ctx context.Context) (string, error) {
		if runs++; runs == 1 {
			// The server has requested this pause.
			return "", retry.After(30*time.Millisecond, errors.New("too many requests"))
		}
		return "welcome", nil
	})
	fmt.Println(err, time.Since(start) >= 30*time.Millisecond)
	// Output: <nil> true
}

// A caller whose wait can end early, for example by a wake-up, takes the pauses from
// Delays and waits itself.
func ExamplePolicy_Delays() {
	next := retry.Policy{Initial: 10 * time.Millisecond, Max: 60 * time.Millisecond, Multiplier: 2, Attempts: 5}.Delays()
	for d, ok := next(); ok; d, ok = next() {
		fmt.Println(d)
	}
	// Output:
	// 10ms
	// 20ms
	// 40ms
	// 60ms
}
