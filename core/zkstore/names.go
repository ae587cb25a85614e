package zkstore

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/store"
)

// The kinds of children of a key's node. A child's name begins with its kind. So one
// listing of the names is enough to decide which claims hold the key.
const (
	plain     = 'h' // a claim in the queue: held if the claims ahead leave room
	reentry   = 'r' // a further hold of an owner, at the place of the first hold
	copied    = 'p' // another session's node for the same lease, at the place of that lease
	kept      = 'k' // the weight of a released or revoked hold, which stays taken for a while
	tomb      = 't' // a lease that was released before its acquire arrived
	surcharge = 'm' // an addition to the tokens of the key
)

// node is a child that has a place in the queue.
type node struct {
	name          string
	kind          byte
	weight, limit int64
	owner, lease  string // digests, because an owner is a secret, see core.Lease.Owner
	nonce         string // of the creating attempt; begins with the process of a Locker's claim
	seq           int32  // assigned by the server, grows with every child of the key
	base          int32  // the place that the node shares; not for plain nodes
	zxid          int64  // the zxid that created the node whose place this node shares
}

func (n node) pos() int32 {
	if n.kind == plain {
		return n.seq
	}
	return n.base
}

// before reports whether the server assigned a before b. Sequence numbers can wrap
// around.
func before(a, b int32) bool { return a-b < 0 }

// digest returns a name for s, an owner or a lease, that does not reveal s.
func digest(kind, s string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + s))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// leaseDigest returns the digest of a lease. The first 8 of its 16 bytes are the
// store.HoldID of the lease.
func leaseDigest(lease string) string { return digest("hold", lease) }

// holdID returns the store.HoldID of the lease with this digest, or "" if lease is not
// a digest.
func holdID(lease string) string {
	sum, err := base64.RawURLEncoding.DecodeString(lease)
	if err != nil || len(sum) != 16 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// nonceLetters is the length of a nonce without its process.
const nonceLetters = 12

func newNonce() string { return rand.Text()[:nonceLetters] }

// nonceOf returns a new nonce for an attempt to acquire a lease. The nonce begins with
// the process, which operators see. Only the other part of the lease's ID is a secret.
func nonceOf(lease string) string { return store.ProcessOf(lease) + newNonce() }

// process returns the process with which the nonce of n begins, see nonceOf.
func (n node) process() string {
	return inspection.Process(n.nonce[:max(len(n.nonce)-nonceLetters, 0)])
}

// prefix returns the name of n without the sequence number.
func (n node) prefix() string {
	s := fmt.Sprintf("%c.%s.%s.%s.%s.%s.", n.kind, strconv.FormatInt(n.weight, 36), strconv.FormatInt(n.limit, 36),
		n.owner, n.lease, n.nonce)
	if n.kind != plain {
		s += strconv.FormatInt(int64(n.base), 10) + "." + strconv.FormatInt(n.zxid, 36) + "."
	}
	return s
}

// parse parses a name that prefix made and the server completed.
func parse(name string) (node, bool) {
	f := strings.Split(name, ".")
	if len(f[0]) != 1 || len(f) < 2 {
		return node{}, false
	}
	n := node{name: name, kind: f[0][0]}
	switch {
	case n.kind == plain && len(f) == 7:
	case (n.kind == reentry || n.kind == copied || n.kind == kept) && len(f) == 9:
	default:
		return node{}, false
	}
	var err [5]error
	var seq, base int64
	n.weight, err[0] = strconv.ParseInt(f[1], 36, 64)
	n.limit, err[1] = strconv.ParseInt(f[2], 36, 64)
	n.owner, n.lease, n.nonce = f[3], f[4], f[5]
	if n.kind != plain {
		base, err[2] = strconv.ParseInt(f[6], 10, 32)
		n.zxid, err[3] = strconv.ParseInt(f[7], 36, 64)
	}
	seq, err[4] = strconv.ParseInt(f[len(f)-1], 10, 32)
	n.seq, n.base = int32(seq), int32(base)
	for _, e := range err {
		if e != nil {
			return node{}, false
		}
	}
	if n.weight < 1 || n.weight > store.All || n.limit < 1 || n.limit > store.All {
		return node{}, false // no claim has such values, and sums must not overflow
	}
	return n, true
}

func tombName(lease string) string { return string(tomb) + "." + lease }

// unescape returns the key for which escape returns this name, if there is one.
func unescape(name string) (key string, ok bool) {
	key, err := url.PathUnescape(name)
	return key, err == nil && escape(key) == name && claims.CheckKey("", key, false) == nil
}

// escape returns a path segment for a key. Different keys have different segments.
func escape(key string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == ':', c == '-', c == '_':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}
