package watermillmw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// Messages of one account are booked one at a time, and each booking is mailed once.
func Example() {
	locks, _ := core.New(memstore.New()) // in production a store that all processes share
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	var subscriber message.Subscriber = pubsub
	var publisher message.Publisher = pubsub
	router, _ := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	mailed := make(chan struct{}, 1)
	book := func(msg *message.Message) ([]*message.Message, error) {
		// msg.Context() is canceled when the lock is lost.
		lease, _ := core.LeaseFromContext(msg.Context())
		fmt.Printf("booked under %s, fenced: %v\n", lease.Key(), lease.Token() > 0)
		out := message.NewMessage(watermill.NewUUID(), msg.Payload)
		out.Metadata.Set("booking_id", "2026-17")
		return []*message.Message{out}, nil
	}
	send := func(msg *message.Message) ([]*message.Message, error) {
		attempt, _ := once.AttemptFromContext(msg.Context())
		fmt.Println("mailed", msg.Metadata.Get("booking_id"), "in attempt", attempt)
		mailed <- struct{}{}
		return nil, nil
	}

	account := watermillmw.Lock(locks, "account", watermillmw.Payload("account_id"))
	router.AddHandler("book", "bookings", subscriber, "booked", publisher, book).AddMiddleware(account)

	runs, err := once.New(locks, once.Retain(7*24*time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	mail := watermillmw.Idempotent(runs, "mail", watermillmw.Metadata("booking_id"))
	router.AddHandler("mail", "booked", subscriber, "mailed", publisher, send).AddMiddleware(account, mail)

	go router.Run(context.Background())
	<-router.Running()
	_ = publisher.Publish("bookings", message.NewMessage(watermill.NewUUID(), []byte(`{"account_id":9007199254740993}`)))
	<-mailed
	_ = router.Close()
	// Output:
	// booked under account:9007199254740993, fenced: true
	// mailed 2026-17 in attempt 1
}

// A duplicate is acked, and the messages of its run are published again.
func ExampleIdempotent() {
	locks, _ := core.New(memstore.New())
	runs, _ := once.New(locks)
	h := watermillmw.Idempotent(runs, "invoice", watermillmw.UUID(), watermillmw.HandlerName("invoices"))(func(msg *message.Message) ([]*message.Message, error) {
		attempt, _ := once.AttemptFromContext(msg.Context())
		fmt.Println("attempt", attempt)
		if attempt == 1 {
			return nil, errors.New("no connection")
		}
		return []*message.Message{message.NewMessage("sent-"+msg.UUID, nil)}, nil
	})
	for range 4 {
		produced, err := h(message.NewMessage("2026-17", nil))
		fmt.Println(len(produced), err)
	}
	// Output:
	// attempt 1
	// 0 no connection
	// attempt 2
	// 1 <nil>
	// 1 <nil>
	// 1 <nil>
}

// The rows, the success of the message and its produced messages are committed together.
func ExampleCommit() {
	var db *sql.DB // its database also stores the runs, see sqlstore
	_ = func(msg *message.Message) ([]*message.Message, error) {
		tx, err := db.BeginTx(msg.Context(), nil)
		if err != nil {
			return nil, err
		}
		defer tx.Rollback() // does nothing after Commit
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO bookings (id) VALUES (?)", msg.UUID); err != nil {
			return nil, err
		}
		booked := message.NewMessage(watermill.NewUUID(), msg.Payload)
		// Commit is the last statement.
		if err := watermillmw.Commit(msg.Context(), sqlstore.In(tx), booked); err != nil {
			return nil, err
		}
		return []*message.Message{booked}, tx.Commit()
	}
}

// TestREADME_Compiles checks that the code of README.md is in the examples of this file.
func TestREADME_Compiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	indent := regexp.MustCompile(`(?m)^\s+`)
	examples := indent.ReplaceAllString(string(file), "")
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		if !strings.Contains(examples, indent.ReplaceAllString(block[1], "")) {
			t.Errorf("got no example with the code of README.md:\n%s", block[1])
		}
	}
	if len(blocks) != 3 {
		t.Errorf("got %d blocks, want 3", len(blocks))
	}
}
