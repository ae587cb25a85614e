package zkstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/zkstore"
)

// refusing is a connection that answers the next multi request with an error code and
// does not send it to the server.
type refusing struct {
	net.Conn
	code    *atomic.Int32 // 0 executes the request
	replies *io.PipeReader
	inject  *io.PipeWriter
}

func (c refusing) Read(b []byte) (int, error) { return c.replies.Read(b) }

func (c refusing) Write(b []byte) (int, error) {
	const multi = 14
	if len(b) >= 12 && int32(binary.BigEndian.Uint32(b[8:])) == multi {
		if code := c.code.Swap(0); code != 0 {
			answer := binary.BigEndian.AppendUint32(nil, 16)
			answer = append(answer, b[4:8]...) // the request's ID
			answer = binary.BigEndian.AppendUint64(answer, 0)
			answer = binary.BigEndian.AppendUint32(answer, uint32(code))
			_, err := c.inject.Write(answer)
			return len(b), err
		}
	}
	return c.Conn.Write(b)
}

func (c refusing) Close() error {
	_ = c.inject.Close()
	return c.Conn.Close()
}

// refuse returns a client whose server refuses the next multi request with code, unless
// code is 0.
func refuse(t testing.TB, server string, code *atomic.Int32) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{server}, session, zk.WithLogInfo(false), zk.WithLogger(silent{}),
		zk.WithDialer(func(network, addr string, limit time.Duration) (net.Conn, error) {
			raw, err := net.DialTimeout(network, addr, limit)
			if err != nil {
				return nil, err
			}
			out, in := io.Pipe()
			go func() {
				for { // whole replies, so that an injected reply does not cut one in two
					size := make([]byte, 4)
					if _, err := io.ReadFull(raw, size); err != nil {
						_ = in.CloseWithError(err)
						return
					}
					body := make([]byte, binary.BigEndian.Uint32(size))
					if _, err := io.ReadFull(raw, body); err != nil {
						_ = in.CloseWithError(err)
						return
					}
					if _, err := in.Write(append(size, body...)); err != nil {
						return
					}
				}
			}()
			return refusing{raw, code, out, in}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	eventually(t, "there is a session", func() bool { return conn.State() == zk.StateHasSession })
	return conn
}

// TestReplies checks the error of a call for each reply of a server, hazard 17.
func TestReplies(t *testing.T) {
	t.Parallel()
	var code atomic.Int32
	s := newStoreOn(t, refuse(t, testserver.SharedZooKeeper(t), &code))
	defer s.Close()
	named := zkstore.Replies()
	for _, n := range []int32{-102, -112, -114, -115, -118, -123, -8} {
		r := named[n]
		r.Refused = true
		named[n] = r
	}
	named[-100], named[-999] = named[-1], named[-1]
	for n, want := range named {
		c := exclusive(fmt.Sprint("reply", -n))
		code.Store(n)
		_, err := s.Acquire(t.Context(), c)
		if err == nil || errors.Is(err, store.ErrUnavailable) != want.Refused || !strings.Contains(err.Error(), want.Advice) {
			t.Errorf("%d: got %v, want that nothing was changed to be certain: %v, and %q", n, err, want.Refused, want.Advice)
		}
		grant(t, s, c)
	}
}

// TestSilentConnection simulates a load balancer that forgets a connection. The client
// replaces a silent connection before the session expires.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	proxy := testserver.NewZooKeeperProxy(t, testserver.SharedZooKeeper(t))
	s, conn := storeOn(t, 4*short, []string{proxy.Addr})
	grant(t, s, exclusive("silent"))
	id := conn.SessionID()
	var first atomic.Int64
	proxy.OnRequest(func(r testserver.Request) testserver.Action {
		first.CompareAndSwap(0, int64(r.Link))
		if int64(r.Link) == first.Load() {
			return testserver.DropRequest
		}
		return testserver.Pass
	})
	_, err := s.Acquire(t.Context(), exclusive("silent next"))
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("acquire on the silent connection: got %v, want an unknown outcome", err)
	}
	eventually(t, "a key is granted on the next connection", func() bool {
		_, err := s.Acquire(t.Context(), exclusive("silent next"))
		return err == nil || errors.Is(err, store.ErrBusy)
	})
	if now := conn.SessionID(); now != id {
		t.Errorf("got session %x, want %x", now, id)
	}
}
