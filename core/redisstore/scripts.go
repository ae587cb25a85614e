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

// The scripts and the files of which each consists, in this order. All files of one script
// share their local names: the header of each says which it takes from those before it.
// A script ends where a file returns, so what settles the most calls comes first, and
// what makes functions, tables and names comes when it is needed:
//
//	clock    the key, the time and the words of answers
//	free     acquire: the usual claim of a free key, by one SET; that is tried alone first, see acquire.go
//	only     release: a hold that is all there is of a string, by GET and DEL
//	look     the time as a number, what reads and writes strings
//	run      acquire: other claims of a free key, finished records; reads all fields
//	relay    release: a hold of a string whose first waiter is granted the key by message
//	beside   release: a hold beside its token or its record; reads all fields
//	state    what is alive of these fields, the waiters, and which of them is granted or woken
//	acquire  the rest of acquire, by the state
//	release  the rest of release, by the state
//
// The other files are the last or the only one of their script.
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
// server does not know it. The header of each file gives its arguments and answers, or where they are.
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

// The letters of the flags in the first argument of acquire and release, in the order of
// the fields below.
const (
	acquireLetters = "fwg"
	releaseLetters = "ul"
)

// acquireFlags are explained in free.lua.
type acquireFlags struct {
	fair      bool // f
	wait      bool // w
	byMessage bool // g
}

// releaseFlags are explained in only.lua.
type releaseFlags struct {
	undo bool // u
	left bool // l
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

// acquire and release are the argument for some flags.
func (w whats) acquire(f acquireFlags) any { return w.word(f.fair, f.wait, f.byMessage) }

func (w whats) release(f releaseFlags) any { return w.word(f.undo, f.left) }

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
