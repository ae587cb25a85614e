package storetest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/store"
)

// nasty lists the ends of unusual keys, which a store must treat like any other key.
var nasty = []struct{ name, end string }{
	{"slashes", "/a//b/../c/"},
	{"spaces", " two  words "},
	{"colons", "::a::"},
	{"percent signs", "%25%s%d%!%00"},
	{"quotes", `'"` + "`" + `'; --`},
	{"backslashes", `\a\\b\`},
	{"glob characters", "*?[a-z]!^$"},
	{"accents and emoji", "äß–漢字🔒"},
	{"a combining accent", "e\u0301"},
	{"letters of both directions", "a\u05d0\u200fb"},
	{"hash signs and commas", "#1,2.3;4|5&6=7<8>"},
	{"escapes of core.Key", ":%00%0A%7F%C2%85%7B%7D%FF%3A%25"},
	{"512 bytes", ""},
}

var keyCases = append(keyTable(), []testCase{
	{"keys that look alike", nil, func(e *env) {
		var held []store.Claim
		for _, key := range []string{
			"a", "A", "a ", " a", "a:", ":a", "a/", "/a", "a%", "a%25", "a*", "?", `a\`, "a'", "ä", "a\u0308",
			"a:queue", "a:fair", "a:record", "a:token", "a:wake", "a:tomb", "a:0", "a:00",
			strings.Repeat("a", 300), strings.Repeat("a", 301),
		} {
			c := e.exclusive()
			c.Key += ":" + key
			e.acquire(e.store, c)
			held = append(held, c)
		}
		for _, c := range held {
			again := e.exclusive()
			again.Key = c.Key
			e.busy(e.other, again)
			e.extend(e.store, c)
			e.release(e.store, c)
		}
	}},
	{"key with braces", nil, func(e *env) {
		if b, ok := e.store.(store.Braced); !ok || !b.Braces() {
			return
		}
		start := e.key
		for _, key := range []string{"{%s}", "{%s}:a", "{%s}:b", "a{%s", "a}%s", "%s{}", "%s{a}{b}"} {
			e.key = fmt.Sprintf(key, start)
			e.lockAndWait()
		}
		a, b := e.exclusive(), e.exclusive()
		a.Key, b.Key = "{"+start+"}:c", start+":c"
		e.acquire(e.store, a)
		e.acquire(e.other, b)
		b.Key, b.Lease = "{"+start+"}:d", b.Lease+"d"
		e.acquire(e.other, b)
		e.release(e.store, a)
		e.extend(e.other, b)
	}},
	{"release of one key of two", nil, func(e *env) {
		a, b := e.exclusive(), e.exclusive()
		b.Key += ":b"
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.release(e.store, a)
		e.extend(e.store, b)
		e.isFree()
	}},
	{"one lease under two keys", nil, func(e *env) {
		a := e.exclusive()
		b := a
		b.Key += ":b"
		e.acquire(e.store, a)
		e.acquire(e.store, b)
		e.release(e.store, a)
		e.notExtended(e.store, a)
		e.extend(e.store, b)
	}},
	{"owner of another key", []Feature{Reentry}, func(e *env) {
		a := e.exclusive()
		e.acquire(e.store, a)
		b := e.exclusive()
		b.Key += ":b"
		e.acquire(e.other, b)
		again := nested(a)
		again.Key = b.Key
		e.busy(e.store, again)
	}},
}...)

// hardKeys returns the nasty keys that begin with base, and some keys of 512 bytes.
// Together, the keys of 512 bytes contain every byte that a key can contain in every
// store.
func hardKeys(base string) (keys []string) {
	for _, n := range nasty {
		if n.end != "" {
			keys = append(keys, base+n.end)
		}
	}
	key := base
	add := func() {
		keys = append(keys, key+strings.Repeat("x", 512-len(key)))
		key = base
	}
	put := func(r rune) {
		if len(key)+utf8.RuneLen(r) > 512 {
			add()
		}
		key += string(r)
	}
	for r := ' '; r < 0x800; r++ {
		if !unicode.IsControl(r) && r != '{' && r != '}' {
			put(r)
		}
	}
	for lead := range rune(16) { // runes of three bytes; the low bits 0x42 avoid the surrogates
		put(max(0x800, lead<<12+0x42))
	}
	for _, r := range "\U00010000\U00050000\U00090000\U000d0000\U0010ffff\ufffd\ufeff\u202e\u2028" {
		put(r)
	}
	add()
	return keys
}

func keyTable() []testCase {
	var cases []testCase
	for _, n := range nasty {
		cases = append(cases, testCase{fmt.Sprintf("key with %s", n.name), nil, func(e *env) {
			e.key += n.end
			if n.end == "" {
				e.key += strings.Repeat("x", 512-len(e.key))
			}
			e.lockAndWait()
		}})
	}
	return cases
}

// lockAndWait acquires, extends and releases the key, and waits for it. It also checks
// a wake-up and stores an answer, if the store has these features.
func (e *env) lockAndWait() {
	e.Helper()
	c, w := e.exclusive(), e.waiting()
	w.Fair = e.can(Fair)
	e.acquire(e.store, c)
	e.busy(e.other, w)
	var woken <-chan struct{}
	if e.can(Watching) {
		woken = e.watch(e.other, w)
	}
	e.extend(e.store, c)
	e.release(e.store, c)
	if woken != nil {
		e.wakes(woken)
	}
	e.acquire(e.other, w)
	e.isHeld()
	e.release(e.other, w)
	e.isFree()
	if e.can(Records) {
		e.finish("answer")
		e.answered(e.other, e.run("again"), "answer")
	}
}
