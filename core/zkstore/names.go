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

// The kinds of children of a key's node. A child's name shows its kind, so that one
// listing is enough.
const (
	plain     = 'h' // a place in the queue: held, if those ahead leave room
	reentry   = 'r' // a further hold of an owner that holds, at that hold's place
	copied    = 'p' // the same lease as another node, for another session, at its place
	kept      = 'k' // a released hold that stays for a while
	tomb      = 't' // a lease that was released before it came
	surcharge = 'm' // an addition to the tokens of the key
)

// node is a child that takes a place in the queue.
type node struct {
	name          string
	kind          byte
	weight, limit int64
	owner, lease  string // digests: an owner is a secret, see core.Lease.Owner
	nonce         string // of the attempt that created it, after the process if a Locker made the claim
	seq           int32  // assigned by the server, grows with every child of the key
	base          int32  // the place that it shares, for all except plain nodes
	zxid          int64  // the creation of the node whose place it shares
}

// pos returns the place in the queue.
func (n node) pos() int32 {
	if n.kind == plain {
		return n.seq
	}
	return n.base
}

// before compares sequence numbers, which the server lets wrap around.
func before(a, b int32) bool { return a-b < 0 }

// digest names an owner or a lease without revealing it.
func digest(kind, s string) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + s))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// leaseDigest names a lease by a digest whose beginning is store.HoldID.
func leaseDigest(lease string) string { return digest("hold", lease) }

// holdID returns store.HoldID of the lease with this digest, or "" if it is no digest.
func holdID(lease string) string {
	sum, err := base64.RawURLEncoding.DecodeString(lease)
	if err != nil || len(sum) != 16 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// nonceLetters is the length of a nonce without the process.
const nonceLetters = 12

func newNonce() string { return rand.Text()[:nonceLetters] }

// nonceOf returns a new nonce of an attempt to acquire for a lease. It begins with the
// process, which operators see: only the rest of the lease is a secret.
func nonceOf(lease string) string { return store.ProcessOf(lease) + newNonce() }

// process returns the process in a nonce of nonceOf.
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

// parse reads a name that prefix made and the server completed.
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
		return node{}, false // no claim is like that, and sums do not overflow
	}
	return n, true
}

// tombName returns the name of a lease's tombstone.
func tombName(lease string) string { return string(tomb) + "." + lease }

// unescape returns the key from which escape makes this name, if there is one.
func unescape(name string) (key string, ok bool) {
	key, err := url.PathUnescape(name)
	return key, err == nil && escape(key) == name && claims.CheckKey("", key, false) == nil
}

// escape returns a path segment for a key; no two keys have the same.
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
