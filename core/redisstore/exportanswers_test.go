package redisstore

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Granted parses an answer of acquire.lua.
func Granted(c store.Claim, v any) (store.Grant, error) {
	a, err := parse("acquire", v)
	if err != nil {
		return store.Grant{}, err
	}
	return granted(&c, a)
}

// Confirmed parses an answer of extend.lua or release.lua.
func Confirmed(v any) error {
	a, err := parse("extend", v)
	if err != nil {
		return err
	}
	return confirmed("extend", a)
}

// LuaText returns the embedded text of a script file.
func LuaText(name string) string { return string(luaFile(name)) }

// Unfit returns the faults that a reply of INFO shows.
func (s *Store) Unfit(text string) []string { return s.unfit(fields(text)) }

// ReadPush parses the text of a grant in a message.
func ReadPush(text string) (until string, token uint64, valid time.Duration, ok bool) {
	p := readPush(text)
	if p == nil {
		return "", 0, 0, false
	}
	return p.until, p.token, p.valid, true
}

// View parses the answer of show.lua, or of plain_show.lua.
func View(plain bool, answer []string) (store.State, bool) {
	read := parseView
	if plain {
		read = parsePlain
	}
	v, ok := read("key", answer)
	return v.state, ok
}

// ListenLate opens a connection for Redisson's wake-ups after the end of its Listener.
func (s *Store) ListenLate() {
	all := s.nodes.all[""]
	h := hub.New(func(ctx context.Context, l *hub.Listener[watched]) error {
		<-ctx.Done()
		return s.listenAt(ctx, l, s.client, all)
	})
	_, _ = h.Watch(context.Background(), "", 0, pipeline.ErrNoAnswer)
	h.Close(time.Minute)
}
