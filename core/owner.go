package core

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/lockkit/lockkit/core/internal/leaseid"
)

// ownerText builds the text by which other callers join the holds of an owner. The text
// has the owner, the owner's token of each key, and a checksum of both, joined by dots.
// If the lease has several keys, each token is followed by the digest of its key. A key
// without a fencing token is omitted.
type ownerText struct{ strings.Builder }

func (t *ownerText) add(key string, token uint64) {
	if token == 0 {
		return
	}
	t.WriteString("." + strconv.FormatUint(token, 10))
	if key != "" {
		t.WriteString("-" + digest(key))
	}
}

func (t *ownerText) text() string { return t.String() + "." + digest(t.String()) }

// splitOwner returns the owner of a text and the token of the owner's hold of key, or 0
// if the text has no token of key. It returns "" for a text with a wrong checksum, or
// with an owner that does not have the form of a lease ID. Anyone can compute the
// checksum, so admit compares the token with the token of the grant.
func splitOwner(text, key string) (owner string, token uint64) {
	end := strings.LastIndexByte(text, '.')
	if end < 0 || digest(text[:end]) != text[end+1:] {
		return "", 0
	}
	owner, tokens, _ := strings.Cut(text[:end], ".")
	if leaseid.ProcessOf(owner) == "" {
		return "", 0
	}
	for tokens != "" {
		var one string
		one, tokens, _ = strings.Cut(tokens, ".")
		digits, of, named := strings.Cut(one, "-")
		if token, err := strconv.ParseUint(digits, 10, 64); err == nil && (!named || of == digest(key)) {
			return owner, token
		}
	}
	return owner, 0
}

// digest returns a short hash of text. The hash is not cryptographic.
func digest(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Owner returns an opaque and unguessable text. A caller that knows the text can join
// the lease's hold by ContextWithOwner, so the text is a secret. The text contains the
// lease's token of each key, and a lease that joins gets the same tokens. If the lease
// was released or lost before the first call of Owner, the text may join nothing.
func (l *Lease) Owner() string {
	var t ownerText
	owner, token := l.show(l.key)
	t.WriteString(owner)
	if len(l.holds) == 1 {
		t.add("", token)
		return t.text()
	}
	for _, h := range l.holds {
		t.add(h.key, l.tokenAt(h))
	}
	return t.text()
}

// show returns the owner of the lease's hold of key, and the lease's token. The hold is
// no longer passed on, because other callers may now join it.
func (l *Lease) show(key string) (owner string, token uint64) {
	h := l.hold(key)
	if !h.show(l) {
		// The owner joins nothing, because the hold may belong to another lease.
		return leaseid.New(l.engine.process), 0
	}
	return h.owner, l.tokenAt(h)
}
