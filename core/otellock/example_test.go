package otellock_test

import (
	"context"
	"log"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/otellock"
)

// Telemetry writes metrics and spans to the global providers, in addition to the log.
func Example() {
	tel, err := otellock.New()
	if err != nil {
		log.Fatal(err)
	}
	locks, err := core.New(memstore.New(), core.WithObserver(core.Observers(tel, core.SlogObserver(slog.Default()))))
	if err != nil {
		log.Fatal(err)
	}
	defer tel.Watch(locks)() // the gauges
	err = locks.Do(context.Background(), core.Key("order", "42"), func(context.Context) error {
		return nil // records lockkit.acquire.duration and lockkit.hold.duration of "order"
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
}

// These options add spans, and an attribute that distinguishes two Lockers of one
// process.
func ExampleNew() {
	tel, err := otellock.New(
		otellock.WithAttributes(attribute.String("locks", "billing")),
		otellock.WithAllAcquires(), otellock.WithHoldSpans(),
	)
	if err != nil {
		log.Fatal(err)
	}
	_, err = core.New(memstore.New(), core.WithObserver(tel))
	if err != nil {
		log.Fatal(err)
	}
	// Output:
}
