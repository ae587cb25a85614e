package redisstore

import (
	"embed"
	"regexp"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// The words with which scripts begin their answers.
const (
	okay int64 = iota
	busy
	lost
	heavy
	finished
)

var (
	acquireScript = newScript("clock.lua", "free.lua", "look.lua", "run.lua", "state.lua", "acquire.lua")
	extendScript  = newScript("clock.lua", "look.lua", "extend.lua")
	releaseScript = newScript("clock.lua", "only.lua", "look.lua", "relay.lua", "beside.lua", "state.lua", "release.lua")

	showScript = newScript("clock.lua", "look.lua", "show.lua")
	cardScript = newScript("card.lua")

	plainShowScript    = newScript("plain_show.lua")
	plainAcquireScript = newScript("plain_acquire.lua")
	plainExtendScript  = newScript("plain_extend.lua")
	plainReleaseScript = newScript("plain_release.lua")
)

//go:embed lua/*.lua
var luaFiles embed.FS

var luaNoise = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// newScript joins files to one script, without comments, since its text is sent when a
// server does not know it. The header of each file gives its arguments and answers.
func newScript(parts ...string) *pipeline.Script {
	var source []byte
	for _, p := range parts {
		text, err := luaFiles.ReadFile("lua/" + p)
		if err != nil {
			panic(err) // the files are part of the program
		}
		source = append(source, luaNoise.ReplaceAll(text, nil)...)
	}
	return pipeline.NewScript(source)
}

// whats are the first argument of a script for each set of its flags, made
// once: a verb, letters, and the values that all calls of a Store share. See state.lua.
type whats []any

func newWhats(verb, letters string, cluster bool, common string) whats {
	w := make(whats, 1<<len(letters))
	for set := range w {
		flags := ""
		for i, l := range letters {
			if set>>i&1 == 1 {
				flags += string(l)
			}
		}
		if cluster {
			flags += "c"
		}
		w[set] = verb + " " + flags + " " + common
	}
	return w
}

// word takes the flags in the order of their letters.
func (w whats) word(flags ...bool) any {
	set := 0
	for i, f := range flags {
		if f {
			set |= 1 << i
		}
	}
	return w[set]
}
