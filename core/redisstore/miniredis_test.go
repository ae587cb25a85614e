package redisstore_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestStoreOnMiniredis runs the suite on miniredis, which users' tests and the examples
// embed. The suite then proves nothing about a real server, but the store has to work
// on miniredis.
func TestStoreOnMiniredis(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			connect := onMiniredis(t)
			return func() store.Store { return connect() }
		},
		Unit: 200 * time.Millisecond,
		Wrap: synctest.Test, Without: []storetest.Feature{storetest.SameToken},
	})
}

// TestScene_OnMiniredis makes calls of many kinds on miniredis. TestStoreOnMiniredis
// makes more of them.
func TestScene_OnMiniredis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := onMiniredis(t)()
		for _, st := range append(scene(s, "miniredis", false), scene(s, "miniredis:fields", true)...) {
			if err := st.do(); !errors.Is(err, st.want) {
				t.Errorf("%s: got %v, want %v", st.name, err, st.want)
			}
		}
		handedOver(t, s, s)
	})
}

// onMiniredis starts a miniredis, and returns a function that creates a Store on it.
func onMiniredis(t testing.TB) func() *redisstore.Store {
	server := &inMemory{server: miniredis.NewMiniRedis()}
	server.server.ClockTTL(true)
	t.Cleanup(server.close)
	return func() *redisstore.Store {
		return newStore(t, testclient.Redis(t, "127.0.0.1:6379", func(o *redis.Options) {
			o.Dialer = server.dial
		}))
	}
}

// inMemory is a miniredis without a port. go-redis can dial after its client is closed.
// Such a dial must neither race with the server's Close nor start the server again.
type inMemory struct {
	server *miniredis.Miniredis

	mu     sync.Mutex
	closed bool
}

func (m *inMemory) dial(context.Context, string, string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, net.ErrClosed
	}
	conn, err := m.server.Dial()
	if err != nil {
		return nil, err
	}
	return newWire(conn), nil
}

func (m *inMemory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.server.Close()
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
