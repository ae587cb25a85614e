package core

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/lockkit/lockkit/core/internal/leaseid"
)

// ownerText is the text by which others join the holds of an owner. It is the owner,
// the owner's token of each key, and a check of both, joined by dots. The token of a
// key is followed by the key's digest, unless it is the only key. Without a fencing
// token the text has no token.
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
// if the text has none. It returns no owner for a text that ownerText has not made: the
// check finds what was cut, changed or added on the way. The check is no secret, so
// admit compares the token with the grant's.
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

// digest returns a short text that differs for nearly all pairs of texts.
func digest(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return strconv.FormatUint(h.Sum64(), 36)
}

// Owner returns an opaque and unguessable text. A caller that knows it can join this
// hold by ContextWithOwner, so it is a secret. It carries the lease's token of each
// key, which a lease that joins then has too. An Owner that is first asked for after
// the lease is released or lost may join nothing.
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

// show returns the owner of the lease's hold of key, and the lease's token. From now on
// other callers may join the hold.
func (l *Lease) show(key string) (owner string, token uint64) {
	h := l.hold(key)
	if !h.show(l) {
		return leaseid.New(l.engine.process), 0 // the hold may be another lease's by now
	}
	return h.owner, l.tokenAt(h)
}
