package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/memstore"
)

func ExampleNew() {
	ctx, store := context.Background(), memstore.New()
	l, err := core.New(store)
	if err != nil {
		panic(err)
	}
	defer l.Close(ctx)
	lease, err := l.Acquire(ctx, core.Key("order", "42"))
	if err != nil {
		panic(err)
	}
	in, err := inspect.New(store)
	if err != nil {
		panic(err)
	}
	lock, err := in.Look(ctx, core.Key("order", "42"))
	fmt.Println(lock.Name, len(lock.Holds), lock.Holds[0].ID == lease.ID(), err)
	fmt.Println(in.Revoke(ctx, lock.Key, lock.Holds[0].ID))
	fmt.Println(errors.Is(lease.Release(ctx), core.ErrLost))
	// Output:
	// order 1 true <nil>
	// <nil>
	// true
}

// The page shows names and digests to every visitor, but no keys and no buttons. Only
// this machine can open it.
func ExampleHandler() {
	in, err := inspect.New(memstore.New()) // the service's store
	if err != nil {
		panic(err)
	}
	http.Handle("/locks", inspect.Handler(in))
	go http.ListenAndServe("127.0.0.1:9090", nil)
}

// operator returns the operator of a request. A service has its own login instead.
func operator(*http.Request) (name string, admin bool) { return "", false }

// This page is in a gin group. Administrators see keys and buttons, and a log entry is
// written before each of their changes.
func ExampleAllow() {
	in, err := inspect.New(memstore.New(), inspect.Observer(core.SlogObserver(nil)))
	if err != nil {
		panic(err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	page := inspect.Handler(in,
		inspect.Allow(func(r *http.Request, a inspect.Action) (string, error) {
			name, admin := operator(r)
			switch {
			case name == "":
				return "", errors.New("a login is needed")
			case a != inspect.View && !admin:
				return "", errors.New("for administrators only")
			}
			return name, nil
		}),
		inspect.Audit(func(ctx context.Context, e inspect.Entry) error {
			log.InfoContext(ctx, "lock "+e.Action.String(), "who", e.Who, "lock", e.Name, "hold", e.Hold)
			return nil
		}))
	r := gin.New()
	r.Group("/admin").Any("/locks", gin.WrapH(page))
}
