package zkstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
)

// session is the state of the client's session, to which all ephemeral nodes of this
// Store belong.
//
// When the servers have expired the session, the client creates a new session, and does
// not report this to the Store. So method do reads the session's ID before and after a
// request. If the ID is the same, the request was served in that session, because IDs
// are not reused.
//
// The leader decides whether a session is alive, from the requests that servers report.
// Every half tick, the client's server reports to the leader the sessions from which it
// has received requests. A reply to a read does not prove such a report, because a
// server that is cut off from the leader still answers reads. A reply to a write proves
// two facts for a moment after the write was sent. The server was connected to the
// leader, and the leader had a majority.
//
// The leader counts the time-out from the last report with the session. This report
// does not cover the write, but it covers a ping, which the client sends every third of
// the time-out. If a tick is shorter than a third of the time-out, the report is at
// most a third of the time-out plus half a tick old. If a tick is longer, the report is
// at most one tick old, and a session is at least two ticks long. So in both cases the
// report is at most half of the time-out old. The other half is safe to use, counted
// from the start of the last confirmed write.
type session struct {
	conn    *zk.Conn
	granted *int32      // the client's field, see grantedBy
	gate    outage.Gate // for the servers

	mu      sync.Mutex
	id      int64
	from    time.Time     // the start of the last confirmed write
	timeout time.Duration // at first the option, see limit
	// server is the servers' clock in milliseconds, and serverAt the time of its
	// reading.
	server   int64
	serverAt time.Time
}

// grantedBy returns a pointer to the client library's field for the negotiated time-out
// in milliseconds, or nil if this version has no such field. The library offers no other
// access to it.
func grantedBy(conn *zk.Conn) *int32 {
	f := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if !f.IsValid() || f.Kind() != reflect.Int32 {
		return nil
	}
	return (*int32)(f.Addr().UnsafePointer())
}

// load reads a field that the client sets without a lock whenever it connects. A read
// at that moment returns the old or the new value, because the field is one word.
//
//go:norace
func load(field *int32) int32 { return *field }

// limit returns the shortest time-out so far. The client requests the value that was
// granted before, but a server with a lower limit then grants less. The caller holds the
// mutex, and a write of the session was confirmed.
func (s *session) limit() time.Duration {
	if s.granted != nil {
		d := time.Duration(load(s.granted)) * time.Millisecond
		if s.timeout == 0 || d < s.timeout {
			s.timeout = d
		}
	}
	return s.timeout
}

func (s *session) confirm(id int64, from time.Time, clock int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit()
	if s.id != id || from.After(s.from) {
		s.id, s.from = id, from
	}
	if clock > 0 {
		s.server, s.serverAt = clock, time.Now()
	}
}

// valid returns the time for which a hold of session id can be trusted, counted from
// the given moment. The result is zero or negative if the hold cannot be trusted.
func (s *session) valid(id int64, from time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		return 0
	}
	return s.from.Add(s.limit() / 2).Sub(from)
}

// confirmed returns the start of the last confirmed write of session id, or a zero
// time.
func (s *session) confirmed(id int64) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != id {
		return time.Time{}
	}
	return s.from
}

// fresh reports whether a write of session id was sent less than a sixth of the
// session's time-out and less than a quarter of ttl ago. It also compares wall-clock
// times, because the wall clock continues while the machine is suspended.
func (s *session) fresh(id int64, write time.Time, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wall := now.Round(0).Sub(write.Round(0))
	return s.id == id && !write.IsZero() && max(now.Sub(write), wall, -wall) < min(s.limit()/6, ttl/4)
}

// clock returns the servers' time, or slightly less.
func (s *session) clock() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server + time.Since(s.serverAt).Milliseconds()
}

func (s *session) current(id int64) bool { return s.conn.SessionID() == id }

var (
	errNotConnected = fmt.Errorf("not connected: %w", store.ErrUnavailable)
	errMoved        = errors.New("the session changed meanwhile")
	errClosed       = fmt.Errorf("store closed: %w", store.ErrUnavailable)
)

// ready waits until the client has a session, and returns its ID. Without a session, a
// request would stay in the client. The client would send it at some later time, perhaps
// in another session.
func (s *session) ready(ctx context.Context) (int64, error) {
	begun := s.gate.Begin()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if id := s.conn.SessionID(); id != 0 && s.conn.State() == zk.StateHasSession {
			return id, nil
		}
		_ = s.gate.Doubt(context.Background(), begun)
		if err := clock.Sleep(ctx, pause); err != nil {
			return 0, fmt.Errorf("%w: %w", errNotConnected, err)
		}
	}
}

// probe returns nil if the servers answer. It sends a sync, for which the client's
// server needs the leader.
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
			if err == nil || replyOf(err).answered {
				return nil // an error of the server is an answer too
			}
			time.Sleep(time.Millisecond) // until the client has noticed the loss
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// do sends one request and waits for its response. It returns the session in which the
// request was served, and the time at which it was sent.
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

// write sends several changes of nodes in one transaction. If the last change writes to
// a node, write returns the state of that node.
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
