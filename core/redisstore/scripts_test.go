package redisstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/redisstore"
)

// luaScript matches a script in scripts.go, and luaPart one of its files.
var (
	luaScript = regexp.MustCompile(`newScript\((".*")\)`)
	luaPart   = regexp.MustCompile(`"(\w+)"`)
)

// scriptFiles returns the files of each script in order, by the name of the last file.
// The names for WithoutScriptedWakeUps begin with "silent_".
func scriptFiles(t *testing.T) map[string][]string {
	t.Helper()
	source, err := os.ReadFile("scripts.go")
	if err != nil {
		t.Fatal(err)
	}
	scripts := make(map[string][]string)
	for _, call := range luaScript.FindAllStringSubmatch(string(source), -1) {
		var files []string
		for _, part := range luaPart.FindAllStringSubmatch(call[1], -1) {
			files = append(files, part[1])
		}
		name := files[len(files)-1]
		if slices.Contains(files, "silent") {
			name = "silent_" + name
		}
		scripts[name] = files
	}
	return scripts
}

func luaText(t *testing.T, name string) string {
	t.Helper()
	return redisstore.LuaText(name)
}

// TestHeadersOfScripts checks that each file is part of a script, and that the last
// file of each script describes the script's call.
func TestHeadersOfScripts(t *testing.T) {
	t.Parallel()
	used := make(map[string]bool)
	for script, files := range scriptFiles(t) {
		header, _, _ := strings.Cut(luaText(t, files[len(files)-1]), "\n\n")
		for _, word := range []string{"-- KEYS[1]", "-- ARGV", "-- answer"} {
			if !strings.Contains(header, word) {
				t.Errorf("the header of %s.lua has no %q", script, word)
			}
		}
		for _, name := range files {
			used[name] = true
		}
	}
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if !used[strings.TrimSuffix(filepath.Base(file), ".lua")] {
			t.Errorf("%s is in no script", file)
		}
	}
}

// luaCommand matches a command in a script, with its first argument if that is KEYS[n].
var luaCommand = regexp.MustCompile(`redis\.(\w+)(\('(\w+)'(, KEYS\[\d\][,)])?)?`)

var luaComment = regexp.MustCompile(`--.*`)

// TestScripts_NameTheirKeys checks that each command names its key as KEYS[n], and that
// no script uses unpack. Proxies in front of servers have both requirements. The
// scripts of WithoutScriptedWakeUps do not publish either.
func TestScripts_NameTheirKeys(t *testing.T) {
	t.Parallel()
	keyless := map[string]bool{"TIME": true, "PUBLISH": true, "SPUBLISH": true, "PUBSUB": true}
	for script, files := range scriptFiles(t) {
		for _, name := range files {
			text := luaComment.ReplaceAllString(luaText(t, name), "")
			for _, m := range luaCommand.FindAllStringSubmatch(text, -1) {
				call := m[1] == "call" || m[1] == "pcall"
				if !call && m[1] != "error_reply" || call && (m[4] == "") != keyless[m[3]] {
					t.Errorf("%s, %s: %s", script, name, m[0])
				}
			}
			for _, word := range []string{"unpack", "redis[", "KEYS,", "KEYS)", "PUB"} {
				if strings.Contains(text, word) && (word != "PUB" || strings.HasPrefix(script, "silent_")) {
					t.Errorf("%s, %s: %s", script, name, word)
				}
			}
		}
	}
}
