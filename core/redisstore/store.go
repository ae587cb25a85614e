package redisstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Store stores locks in Redis. It implements store.Store, store.Watcher, store.Prompt,
// store.Braced, store.Node, store.Checker, store.Inspector and store.Cards. It is safe
// for concurrent use.
//
// A Store repeats a command only if the command has certainly changed nothing. Every
// call returns soon after its ctx is done, or after two seconds if ctx is not done
// earlier. Check and List can take longer. Limit and the package comment name the other
// exceptions. An error shows whether anything can have changed, as store.Store requires.
type Store struct {
	config
	taken   takenKeys
	doomed  sync.Map // leases whose grant is being released, see WithReplicas
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is a Cluster client

	pipeline *pipeline.Pipeline
	script   scripts
	channel  string // for the Store's wake-ups
	hub      *hub.Hub[watched]
	nodes    nodes // the channels of Redisson's locks
	// The first arguments of scripts, by flags.
	acquires flagArgs
	releases flagArgs

	identity identity
	puts     atomic.Int64 // the number of cards put
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Prompt  = (*Store)(nil)
	_ store.Braced  = (*Store)(nil)
	_ store.Node    = (*Store)(nil)
	_ store.Checker = (*Store)(nil)

	_ store.Inspector = (*Store)(nil)
	_ store.Cards     = (*Store)(nil)
)

// New returns a Store that uses client. It sends nothing; Check reports whether the
// server is fit. The caller closes client after the Store.
//
// New fails with store.ErrInvalid for a nil client, for invalid options, and for three
// kinds of clients. A *redis.Ring moves keys to another server while the first server
// still stores them. A Cluster client that reads from replicas sees locks that no longer
// exist. A *redis.AutoPipeliner can hang. New cannot detect a failover client with
// ReplicaOnly. With such a client every call fails with store.ErrUnavailable, and Check
// reports the replica.
func New(client redis.UniversalClient, opts ...Option) (*Store, error) {
	s := &Store{client: client, identity: identity{turn: make(chan struct{}, 1)}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("redisstore: new: option is nil: %w", store.ErrInvalid)
		}
		o(&s.config)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	switch {
	case !s.foreign():
		s.prefix += format
	case s.plain && !s.prefixed:
		s.prefix = plainPrefix
	}
	if err := s.accept(); err != nil {
		return nil, err
	}
	wake, id := s.prefix+"wake:", rand.Text()
	common := id + " " + wake
	s.acquires = newFlagArgs("acquire", acquireLetters, s.cluster != nil, common)
	s.releases = newFlagArgs("release", releaseLetters, s.cluster != nil, common)
	s.pipeline = pipeline.New(client)
	s.script = s.scripts()
	s.channel = wake + id
	if s.redisson {
		s.channel = beside("redisson_lock__channel", id)
	}
	s.hub = hub.New(s.listen)
	return s, nil
}

// accept returns an error for a client that New refuses.
func (s *Store) accept() error {
	var read time.Duration
	switch c := s.client.(type) {
	case nil:
		return fmt.Errorf("redisstore: new: client is nil: %w", store.ErrInvalid)
	case *redis.Client:
		if c == nil {
			return fmt.Errorf("redisstore: new: client is nil: %w", store.ErrInvalid)
		}
		read = c.Options().ReadTimeout
	case *redis.ClusterClient:
		if c == nil {
			return fmt.Errorf("redisstore: new: client is nil: %w", store.ErrInvalid)
		}
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return fmt.Errorf("redisstore: new: the cluster client routes to replicas (ReadOnly, RouteByLatency or RouteRandomly): %w", store.ErrInvalid)
		}
		s.cluster, read = c, c.Options().ReadTimeout
	case *redis.Ring:
		return fmt.Errorf("redisstore: new: a Ring moves keys between servers that do not share their locks, use a cluster: %w", store.ErrInvalid)
	case *redis.AutoPipeliner:
		return fmt.Errorf("redisstore: new: an AutoPipeliner may wait for itself, use its client (calls travel together anyway): %w", store.ErrInvalid)
	default:
		if s.acks {
			return fmt.Errorf("redisstore: new: WithReplicas needs a *redis.Client or *redis.ClusterClient, not %T: %w", c, store.ErrInvalid)
		}
	}
	if s.acks && read > 0 && s.ackWait >= read {
		return fmt.Errorf("redisstore: new: timeout %s of WithReplicas exceeds the client's read timeout of %s: %w", words.Duration(s.ackWait), words.Duration(read), store.ErrInvalid)
	}
	return nil
}

// CheckClaim implements store.Checker. It sends nothing.
func (s *Store) CheckClaim(c store.Claim) error {
	if err := s.usable("acquire", &c); err != nil {
		return err
	}
	return s.fits("acquire", &c)
}

// Braces implements store.Braced. Keys that are shared with other programs can have
// braces.
func (s *Store) Braces() bool { return s.foreign() }

// key returns the name of a lock's key in Redis. The part in braces determines the slot
// in a Cluster, so that programs can put their own keys into the same slot.
func (s *Store) key(key string) string { return string(s.named(nil, key)) }

// named appends the name of a lock's key in Redis to b.
func (s *Store) named(b []byte, key string) []byte {
	b = append(b, s.prefix...)
	if s.foreign() {
		return append(b, key...)
	}
	return append(append(append(b, '{'), key...), '}')
}

// usable returns an error for a claim that would break the stored format, and for a
// record in a key that other programs share.
func (s *Store) usable(op string, c *store.Claim) error {
	var fault string
	switch {
	case !word(c.Lease):
		fault = "a lease is a word of 1 to 256 bytes"
	case c.Owner != c.Lease && !word(c.Owner), c.Via != "" && !word(c.Via):
		fault = "an owner is a word of 1 to 256 bytes"
	case op == "release" && c.Last >= 1<<53:
		fault = "a last token is below 2^53"
	case s.foreign() && c.Record != nil && (op == "acquire" || op == "release"):
		return s.unsupported(op, "a record")
	default:
		return claims.Check("redisstore", op, c, s.foreign())
	}
	return fmt.Errorf("redisstore: %s: %s: %w", op, fault, store.ErrInvalid)
}

// fits returns an error for a claim that keys of other programs do not support.
func (s *Store) fits(op string, c *store.Claim) error {
	switch {
	case !s.foreign():
		return nil
	case c.Weight != store.All || c.Limit != store.All:
		return s.unsupported(op, "sharing")
	case c.Fair:
		return s.unsupported(op, "fairness")
	case s.redisson && c.MinToken > 0 && s.split(c.Key):
		return s.unsupported(op, "a fencing token for a name with braces that are no hash tag, in a Cluster,")
	case s.plain && c.Via != "":
		return s.unsupported(op, "joining another owner")
	case s.plain && c.MinToken > 0:
		return s.unsupported(op, "a fencing token")
	}
	return nil
}

func (s *Store) unsupported(op, what string) error {
	keys := "plain keys"
	if s.redisson {
		keys = "Redisson's locks"
	}
	return fmt.Errorf("redisstore: %s: %s with %s: %w", op, what, keys, store.ErrUnsupported)
}

// word reports whether s can be an element of a list that has spaces as separators.
func word(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c-'!' > '~'-'!' {
			return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) })
		}
	}
	return true
}

// millis rounds d up to whole milliseconds.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Close ends the background work of the Store. It closes all watches, and later calls of
// Watch fail. It does not close the client. Claims can still be extended and released.
// Close returns an error if the subscription's connection hangs.
func (s *Store) Close() error {
	s.pipeline.Close()
	if ended := s.closeChannels(pipeline.Limit); !s.hub.Close(pipeline.Limit) || !ended {
		return errors.New("redisstore: close: the subscription's connection hangs and will end by its own time-out")
	}
	return nil
}

// Limit implements store.Prompt. It returns two seconds. If the server does not know the
// script of a call, or the slot of its key has moved, the repeated call has another two
// seconds.
func (s *Store) Limit() time.Duration { return pipeline.Limit }
