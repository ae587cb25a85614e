package redisstore_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestStoreOnMiniredis runs the suite on miniredis, which users' tests and the examples
// embed. The suite then proves nothing about a real server, but the store has to work on
// miniredis. Each case runs in virtual time with its own server.
func TestStoreOnMiniredis(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute of a processor")
	}
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			server := miniredis.NewMiniRedis()
			server.ClockTTL(true)
			t.Cleanup(server.Close)
			return func() store.Store {
				return newStore(t, testclient.Redis(t, "127.0.0.1:6379", func(o *redis.Options) {
					o.Dialer = func(context.Context, string, string) (net.Conn, error) {
						conn, err := server.Dial()
						if err != nil {
							return nil, err
						}
						return newWire(conn), nil
					}
				}))
			}
		},
		Unit: 200 * time.Millisecond,
		Wrap: synctest.Test, Without: []storetest.Feature{storetest.SameToken},
	})
}

// wire is one end of a net.Pipe with a buffer for written bytes, as a socket has.
// Without the buffer a long pipeline would block both ends.
type wire struct {
	net.Conn
	out  chan []byte
	done chan struct{}
	once sync.Once
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, out: make(chan []byte, 1000), done: make(chan struct{})}
	go func() {
		for {
			select {
			case p := <-w.out:
				if _, err := conn.Write(p); err != nil {
					return
				}
			case <-w.done:
				return
			}
		}
	}()
	return w
}

func (w *wire) Write(p []byte) (int, error) {
	select {
	case w.out <- slices.Clone(p):
		return len(p), nil
	case <-w.done:
		return 0, net.ErrClosed
	}
}

func (w *wire) SetWriteDeadline(time.Time) error { return nil }
func (w *wire) SetDeadline(t time.Time) error    { return w.SetReadDeadline(t) }
func (w *wire) Close() error {
	w.once.Do(func() { close(w.done) })
	return w.Conn.Close()
}
