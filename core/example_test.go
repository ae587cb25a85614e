package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/retry"
)

func newExample(opts ...core.Option) *core.Locker {
	locks, err := core.New(memstore.New(), opts...)
	if err != nil {
		panic(err)
	}
	return locks
}

func ExampleNew() {
	locks, err := core.New(
		memstore.New(), // or a store of core/redisstore, for more than one process
		core.WithDefaults(core.TTL(10*time.Second), core.Wait(2*time.Second)),
		core.WithObserver(core.SlogObserver(nil)),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	lease, err := locks.Acquire(ctx, core.Key("order", "42"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println("holding", lease.Key())
	// Output: holding order:42
}

func ExampleLocker_Do() {
	locks, ctx := newExample(), context.Background()
	err := locks.Do(ctx, core.Key("order", "42"), func(ctx context.Context) error {
		// ctx is canceled if the lock is lost, so pass it on to the functions that do
		// the work.
		fmt.Println("charging order 42")
		return nil
	})
	fmt.Println(err)
	// Output:
	// charging order 42
	// <nil>
}

func ExampleLocker_Acquire() {
	locks, ctx := newExample(), context.Background()
	lease, err := locks.Acquire(ctx, "order:42", core.TTL(30*time.Second), core.Wait(5*time.Second))
	if err != nil {
		fmt.Println("not now:", err)
		return
	}
	defer lease.Release(ctx) // safe even if ctx is canceled

	fmt.Println("held:", lease.Context().Err() == nil, "token:", lease.Token() > 0)
	// Output: held: true token: true
}

func ExampleLocker_TryAcquire() {
	locks, ctx := newExample(), context.Background()
	first, err := locks.TryAcquire(ctx, "order:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Release(ctx)

	_, err = locks.TryAcquire(ctx, "order:42")
	fmt.Println(errors.Is(err, core.ErrBusy), err)
	// Output: true core: acquire "order": lockkit: lock is busy
}

func ExampleBusyError() {
	locks, ctx := newExample(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42", core.TTL(30*time.Second))
	defer lease.Release(ctx)

	_, err := locks.Acquire(ctx, "order:42", core.Wait(0))
	var busy *core.BusyError
	if errors.As(err, &busy) {
		fmt.Println(busy.Name, "is busy, try again within", busy.RetryAfter.Round(10*time.Second))
	}
	// Output: order is busy, try again within 30s
}

func ExampleKey() {
	fmt.Println(core.Key("order", "42"))
	fmt.Println(core.Key("order", "eu", "42"))
	fmt.Println(core.Key("order", "eu:42"))
	// Output:
	// order:42
	// order:eu:42
	// order:eu%3A42
}

func ExampleShared() {
	locks, ctx := newExample(), context.Background()
	a, _ := locks.Acquire(ctx, "catalogue:books", core.Shared())
	b, _ := locks.Acquire(ctx, "catalogue:books", core.Shared())
	_, err := locks.TryAcquire(ctx, "catalogue:books")
	fmt.Println("a writer while there are readers:", err)

	a.Release(ctx)
	b.Release(ctx)
	writer, err := locks.TryAcquire(ctx, "catalogue:books")
	fmt.Println("and after:", err)
	writer.Release(ctx)
	// Output:
	// a writer while there are readers: core: acquire "catalogue": lockkit: lock is busy
	// and after: <nil>
}

func ExamplePermits() {
	locks, ctx := newExample(), context.Background()
	for range 3 {
		lease, err := locks.TryAcquire(ctx, "printer:2", core.Permits(1, 2))
		if err != nil {
			fmt.Println(err)
			continue
		}
		defer lease.Release(ctx)
		fmt.Println("printing")
	}
	// Output:
	// printing
	// printing
	// core: acquire "printer": lockkit: lock is busy
}

func ExampleAlso() {
	locks, ctx := newExample(), context.Background()
	from, to := core.Key("account", "7"), core.Key("account", "9")
	err := locks.Do(ctx, from, func(ctx context.Context) error {
		a, _ := core.LeaseOf(ctx, from)
		b, _ := core.LeaseOf(ctx, to)
		fmt.Println("both accounts under one lease:", a == b)
		return nil
	}, core.Also(to))
	fmt.Println(err)
	// Output:
	// both accounts under one lease: true
	// <nil>
}

// A writer becomes a reader, and no other writer can acquire the key in between.
func ExampleShared_downgrade() {
	ctx := context.Background()
	locks, err := core.New(memstore.New())
	if err != nil {
		panic(err)
	}
	writer, err := locks.Acquire(ctx, "stock:9")
	if err != nil {
		panic(err)
	}
	reader, err := locks.Acquire(core.ContextWithOwner(ctx, writer.Owner()), "stock:9", core.Shared())
	if err != nil {
		panic(err)
	}
	if err := writer.Release(ctx); err != nil {
		panic(err)
	}
	_, errWriter := locks.TryAcquire(ctx, "stock:9")
	other, errReader := locks.TryAcquire(ctx, "stock:9", core.Shared())
	fmt.Println("reader:", reader.Context().Err())
	fmt.Println("another writer:", errWriter)
	fmt.Println("another reader:", errReader)
	_ = other.Release(ctx)
	_ = reader.Release(ctx)
	// Output:
	// reader: <nil>
	// another writer: core: acquire "stock": lockkit: lock is busy
	// another reader: <nil>
}

func ExampleKeepFor() {
	locks, ctx := newExample(), context.Background()
	report := func(context.Context) error {
		fmt.Println("writing the nightly report")
		return nil
	}
	for range 3 { // three replicas whose clocks differ a little
		err := locks.Do(ctx, "report:nightly", report, core.KeepFor(time.Minute), core.Wait(0))
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// writing the nightly report
	// core: acquire "report": lockkit: lock is busy
	// core: acquire "report": lockkit: lock is busy
}

func ExampleFair() {
	locks, ctx := newExample(core.WithDefaults(core.Fair())), context.Background()
	err := locks.Do(ctx, "order:42", func(context.Context) error {
		fmt.Println("in order of arrival, in all processes")
		return nil
	})
	fmt.Println(err)
	// Output:
	// in order of arrival, in all processes
	// <nil>
}

func ExampleFenced() {
	locks, ctx := newExample(), context.Background()
	var newest uint64
	write := func(token uint64, what string) { // makes the check that the resource needs
		if token < newest {
			fmt.Println("refused:", what)
			return
		}
		newest = token
		fmt.Println("written:", what)
	}
	old, _ := locks.Acquire(ctx, "order:42", core.Fenced())
	old.Release(ctx) // or the lease is lost while its holder is paused
	next, _ := locks.Acquire(ctx, "order:42", core.Fenced())
	defer next.Release(ctx)
	write(next.Token(), "by the new holder")
	write(old.Token(), "by the old one, late")
	// Output:
	// written: by the new holder
	// refused: by the old one, late
}

func ExampleMaxHold() {
	locks, ctx := newExample(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42", core.TTL(100*time.Millisecond), core.MaxHold(200*time.Millisecond))
	<-lease.Context().Done() // the handler hangs
	fmt.Println(context.Cause(lease.Context()))
	fmt.Println(lease.Release(ctx))
	// Output:
	// lockkit: lock lost
	// core: release "order": lockkit: lock lost
}

func ExampleRetry() {
	locks, ctx := newExample(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")
	defer lease.Release(ctx)

	twice := retry.Policy{Initial: 10 * time.Millisecond, Attempts: 2}
	_, err := locks.Acquire(ctx, "order:42", core.Retry(twice), core.Wait(50*time.Millisecond))
	fmt.Println(err)
	// Output: core: acquire "order": lockkit: lock is busy
}

func ExampleContextWithOwner() {
	store := memstore.New()
	ctx := context.Background()
	here, _ := core.New(store)
	there, _ := core.New(store) // in another process

	lease, _ := here.Acquire(ctx, "order:42")
	owner := lease.Owner() // sent with the request, and kept secret

	joined, err := there.Acquire(core.ContextWithOwner(ctx, owner), "order:42")
	fmt.Println(err, joined.Token() == lease.Token())
	lease.Release(ctx)
	_, err = here.TryAcquire(ctx, "order:42")
	fmt.Println(err)
	joined.Release(ctx)
	// Output:
	// <nil> true
	// core: acquire "order": lockkit: lock is busy
}

func ExampleLeaseFromContext() {
	locks := newExample()
	save := func(ctx context.Context) {
		if lease, ok := core.LeaseFromContext(ctx); ok {
			fmt.Println("saving under the token of", lease.Key(), lease.Token() > 0)
		}
	}
	locks.Do(context.Background(), "order:42", func(ctx context.Context) error {
		save(ctx)
		return nil
	})
	// Output: saving under the token of order:42 true
}

func ExampleGuard() {
	type Payment struct{ Order string }
	locks := newExample()
	pay := core.Guard(locks,
		func(p Payment) (string, error) { return core.Key("order", p.Order), nil },
		func(_ context.Context, p Payment) (string, error) { return "receipt for " + p.Order, nil },
	)
	fmt.Println(pay(context.Background(), Payment{Order: "42"}))
	// Output: receipt for 42 <nil>
}

// counter counts the events of locks, for a metric.
type counter map[core.Kind]int

func (c counter) Observe(_ context.Context, e core.Event) { c[e.Kind]++ }

func ExampleObservers() {
	metric := counter{}
	// Losses and failures are written. Other events are at debug level.
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	locks := newExample(core.WithObserver(core.Observers(metric, core.SlogObserver(log))))
	locks.Do(context.Background(), "order:42", func(context.Context) error { return nil })
	fmt.Println(metric[core.Acquired], metric[core.Released], metric[core.Lost])
	// Output: 1 1 0
}

// This observer handles losses and ignores all other events.
func ExampleObserver() {
	lost := make(alarm, 1)
	locks := newExample(core.WithObserver(lost), core.WithDefaults(core.TTL(100*time.Millisecond), core.NoRenew()))
	lease, _ := locks.Acquire(context.Background(), "order:42")
	<-lease.Context().Done() // the work takes longer than its lock
	fmt.Println(errors.Is(context.Cause(lease.Context()), core.ErrLost))
	fmt.Println("lost a lock of", <-lost)
	_ = lease.Release(context.Background())
	_ = locks.Close(context.Background())
	// Output:
	// true
	// lost a lock of order
}

// alarm receives the names of lost locks.
type alarm chan string

// Observe does not block, because an acquire or a release waits for it.
func (a alarm) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Lost {
		select {
		case a <- e.Name:
		default: // there is an alarm in the channel already
		}
	}
}

// A service first shuts down the server, so that its handlers release their locks. Then
// it closes the Locker, and then the client of the store.
func ExampleLocker_Close_server() {
	locks := newExample()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = locks.Do(r.Context(), core.Key("order", "42"), func(context.Context) error { return nil })
	})}

	// On SIGTERM:
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fmt.Println(server.Shutdown(ctx)) // accepts no new requests, and waits for requests in flight
	// Close waits for the remaining leases and the releases in the background.
	fmt.Println(locks.Close(ctx))
	// client.Close() of the store's Redis comes last.
	// Output:
	// <nil>
	// <nil>
}

func ExampleLocker_Close() {
	locks, ctx := newExample(), context.Background()
	lease, _ := locks.Acquire(ctx, "order:42")

	shutdown, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	fmt.Println(locks.Close(shutdown)) // a holder does not release its lease in time
	fmt.Println(context.Cause(lease.Context()))
	_, err := locks.Acquire(ctx, "order:42")
	fmt.Println(err)
	// Output:
	// core: close: context deadline exceeded
	// lockkit: locker closed
	// core: acquire "order": lockkit: locker closed
}
