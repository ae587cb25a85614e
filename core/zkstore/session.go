package zkstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// session is the state of the client's session, to which all nodes of this Store
// belong.
//
// The client makes a new session when the servers have expired the old one, and does
// not report that to a user of the connection. So every request reads the session's ID
// before and after. If it is the same, the request was served in that session, because
// IDs are not reused.
//
// The leader counts the requests that keep a session alive. Every half tick, the server
// of the client reports to the leader the sessions from which it has received requests.
// A reply to a read proves nothing of that, because a server that was cut off from the
// leader goes on answering reads. A reply to a write proves that the way to the leader
// was whole, and that the leader had a majority, after the request was sent.
//
// So the leader knows what that server had received when it reported before: not the
// write, but a ping, and pings go out every third of the time-out. That ping is at most
// a third of the time-out and half a tick old. Where ticks are rarer than pings, it is
// no older than two halves of a tick. No session is shorter than two ticks, so either
// is half of the time-out. The other half, from the start of the last confirmed write,
// is safe. Where there is only one server, all of it would be.
type session struct {
	conn   *zk.Conn
	option time.Duration
	gate   outage.Gate // of the servers

	mu      sync.Mutex
	id      int64
	from    time.Time     // when the last confirmed write began
	timeout time.Duration // as negotiated
	// The servers' clock in milliseconds, and the time when it was read.
	server   int64
	serverAt time.Time
}

// field is the field in which the client library stores the negotiated time-out. The
// library has no other way to read it.
const field = "sessionTimeoutMs"

// knowsTimeout reports whether this version of the library has the field.
func knowsTimeout() bool {
	f, ok := reflect.TypeFor[zk.Conn]().FieldByName(field)
	return ok && f.Type.Kind() == reflect.Int32
}

// confirm records a confirmed write in session id.
func (s *session) confirm(id int64, from time.Time, clock int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeout == 0 {
		// It is read once, when the session has just answered. The client sets it,
		// without a lock, whenever it connects, and always asks for its first value.
		s.timeout = s.option
		if knowsTimeout() {
			ms := reflect.ValueOf(s.conn).Elem().FieldByName(field).Int()
			if d := time.Duration(ms) * time.Millisecond; s.timeout == 0 || d < s.timeout {
				s.timeout = d
			}
		}
	}
	if s.id != id || from.After(s.from) {
		s.id, s.from = id, from
	}
	if clock > 0 {
		s.server, s.serverAt = clock, time.Now()
	}
}

// valid returns how long a hold of session id can be relied on, from the given moment.
// The result is not positive if it cannot.
func (s *session) valid(id int64, from time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		return 0
	}
	return s.from.Add(s.timeout / 2).Sub(from)
}

// confirmed returns when the last confirmed write of session id began, or zero.
func (s *session) confirmed(id int64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		return time.Time{}
	}
	return s.from
}

// fresh reports whether a write of session id was a short time ago, for the session and
// for a TTL. It also asks the clock that goes on while the machine is suspended.
func (s *session) fresh(id int64, write time.Time, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wall := now.Round(0).Sub(write.Round(0))
	return s.id == id && !write.IsZero() && max(now.Sub(write), wall, -wall) < min(s.timeout/6, ttl/4)
}

// clock returns the time of the servers' clock, or a little less.
func (s *session) clock() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server + time.Since(s.serverAt).Milliseconds()
}

// current reports whether the client has this session.
func (s *session) current(id int64) bool { return s.conn.SessionID() == id }

var (
	errNotConnected = fmt.Errorf("not connected: %w", store.ErrUnavailable)
	errMoved        = errors.New("the session changed meanwhile")
	errClosed       = fmt.Errorf("store closed: %w", store.ErrUnavailable)
)

// ready waits until the client has a session, and returns its ID. Requests that are
// made without a session would wait in the client, to be sent at any time later and
// perhaps in another session.
func (s *session) ready(ctx context.Context) (int64, error) {
	begun := s.gate.Begin()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if id := s.conn.SessionID(); id != 0 && s.conn.State() == zk.StateHasSession {
			return id, nil
		}
		_ = s.gate.Doubt(context.Background(), begun)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, fmt.Errorf("%w: %w", errNotConnected, context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// probe returns nil if the servers answer. It asks them to bring the client up to date,
// which takes the leader: a server that was cut off from it goes on answering reads.
func (s *Store) probe(ctx context.Context) error {
	for {
		if _, err := s.sess.ready(ctx); err != nil {
			return err
		}
		done := make(chan error, 1)
		s.background(func() {
			_, err := s.conn.Sync("/")
			done <- err
		})
		select {
		case err := <-done:
			if !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
				return nil // even if it is not allowed
			}
			time.Sleep(time.Millisecond) // until the client knows it too
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do makes one request, waits for its answer, and returns the session in which it was
// served.
func (s *session) do(ctx context.Context, request func() error) (id int64, from time.Time, err error) {
	id, err = s.ready(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	begun := s.gate.Begin()
	from = time.Now()
	if err = request(); err == nil || replyOf(err).answered {
		s.gate.Answered()
	} else {
		_ = s.gate.Doubt(context.Background(), begun)
	}
	if err == nil && !s.current(id) {
		err = errMoved
	}
	return id, from, err
}

// write makes one request out of several that change nodes, all or none. The last one
// writes to a node, whose state write returns.
func (s *session) write(ctx context.Context, ops ...any) (answers []zk.MultiResponse, stat zk.Stat, id int64, err error) {
	id, from, err := s.do(ctx, func() (err error) {
		answers, err = s.conn.Multi(ops...)
		return err
	})
	if err != nil {
		return nil, stat, id, err
	}
	if last := answers[len(answers)-1].Stat; last != nil {
		stat = *last
	}
	s.confirm(id, from, stat.Mtime)
	return answers, stat, id, nil
}
