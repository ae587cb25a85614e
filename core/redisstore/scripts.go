package redisstore

import (
	"embed"
	"regexp"
	"strings"

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

// The scripts. Each is one file. A line in it that is but the name of another file stands
// for that one: a script ends where it returns, so what settles the most calls comes
// first, and what makes functions and tables comes where it is needed.
var (
	acquireScript = newScript("acquire.lua")
	extendScript  = newScript("extend.lua")
	releaseScript = newScript("release.lua")
	showScript    = newScript("show.lua")

	cardScript         = newScript("card.lua")
	plainShowScript    = newScript("plain_show.lua")
	plainAcquireScript = newScript("plain_acquire.lua")
	plainExtendScript  = newScript("plain_extend.lua")
	plainReleaseScript = newScript("plain_release.lua")
)

//go:embed lua/*.lua
var luaFiles embed.FS

// luaInclude is a line in a script that names a file which stands there.
var luaInclude = regexp.MustCompile(`(?m)^-- \w+\.lua\n`)

var luaNoise = regexp.MustCompile(`(?m)^\s*--.*\n|^\s*\n|^\s+`)

// newScript returns the script of a file without comments, since its text is sent when a
// server does not know it. The header of each file gives its arguments and answers, or where they are.
func newScript(file string) *pipeline.Script {
	text := luaInclude.ReplaceAllFunc(luaFile(file), func(line []byte) []byte {
		return luaFile(strings.Trim(string(line), "- \n"))
	})
	return pipeline.NewScript(luaNoise.ReplaceAll(text, nil))
}

func luaFile(name string) []byte {
	text, err := luaFiles.ReadFile("lua/" + name)
	if err != nil {
		panic(err) // the files are part of the program
	}
	return text
}

// The letters of the flags in the first argument of acquire and release, in the order of
// the fields below.
const (
	acquireLetters = "fwg"
	releaseLetters = "ul"
)

// acquireFlags are explained in acquire.lua.
type acquireFlags struct {
	fair      bool // f
	wait      bool // w
	byMessage bool // g
}

// releaseFlags are explained in release.lua.
type releaseFlags struct {
	undo bool // u
	left bool // l
}

// whats are the first argument of a script for each set of its flags, made
// once: a verb, letters, and the values that all calls of a Store share. See waiters.lua.
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
