//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

// section is a section of core/OPERATIONS.md, with a heading of the second level.
type section struct {
	title  string
	blocks []*block
	words  map[string]bool // commands in the text, and whether the test has run them
}

// block is a block of commands with their expected output.
type block struct {
	steps []step
	run   bool
}

type step struct{ command, output string }

var (
	fence    = regexp.MustCompile("(?m)^( *)```(\\w*)\n(?s:(.*?))^ *```\n")
	codeSpan = regexp.MustCompile("`([^`]+)`")
	commands = regexp.MustCompile(`^(lockkit|redis-cli|promtool|kill|make|go|echo) `)
)

func sections(t *testing.T) (all []*section) {
	t.Helper()
	text, err := os.ReadFile("../../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		s := &section{words: make(map[string]bool)}
		s.title, part, _ = strings.Cut(part, "\n")
		for _, m := range fence.FindAllStringSubmatch(part, -1) {
			if language := m[2]; language == "" {
				s.blocks = append(s.blocks, blockOf(t, strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")[1:]))
			}
		}
		for _, m := range codeSpan.FindAllStringSubmatch(fence.ReplaceAllString(part, ""), -1) {
			if command := strings.ReplaceAll(strings.Join(strings.Fields(m[1]), " "), `\|`, "|"); commands.MatchString(command) {
				s.words[command] = false
			}
		}
		all = append(all, s)
	}
	return all
}

func blockOf(t *testing.T, text string) *block {
	t.Helper()
	b := &block{}
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "$ ")
		switch last := len(b.steps) - 1; {
		case ok:
			b.steps = append(b.steps, step{command: strings.TrimSpace(command)})
		case last < 0:
			t.Fatalf("no command prints %q", line)
		default:
			b.steps[last].output += line
		}
	}
	return b
}

// scene is the situation of a section: servers, and the processes that use them.
type scene struct {
	*section
	t     *testing.T
	store string   // value of LOCKKIT_STORE
	port  string   // redis-cli's port, unless the command names a port
	here  []string // pairs of a word of the page and its replacement in the test
	stdin string
}

// sh runs a script in a shell. The command lockkit runs the program.
func (s *scene) sh(script string) call {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Symlink(self(s.t), filepath.Join(dir, "lockkit")); err != nil {
		s.t.Fatal(err)
	}
	cmd := lockkit(s.t, s.store)
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", strings.NewReplacer(s.here...).Replace(script)}
	cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(s.stdin)
	if s.port != "" {
		real, err := exec.LookPath("redis-cli")
		if err != nil {
			testserver.Missing(s.t, "redis-cli is not installed (apt-get install redis-tools, or brew install redis)")
		}
		// --no-raw formats the output as on a terminal. The command's own options
		// override these options.
		text := "#!/bin/sh\nexec " + real + " --no-raw -p " + s.port + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(text), 0o700); err != nil {
			s.t.Fatal(err)
		}
	}
	return end(s.t, cmd)
}

// block runs the block that begins with the command first, in one shell, and compares
// each command's output with the page.
func (s *scene) block(first string) {
	s.t.Helper()
	for _, b := range s.blocks {
		if b.run || b.steps[0].command != first {
			continue
		}
		b.run = true
		var script strings.Builder
		for _, step := range b.steps {
			script.WriteString("{ " + step.command + "\n} 2>&1; code=$?; printf '\\036'; (exit $code)\n")
		}
		printed := strings.Split(s.sh(script.String()).out, "\036")
		for i, step := range b.steps {
			if got, want := s.alike(printed[i]), alike(step.output); got != want {
				s.t.Errorf("$ %s\nprints\n%s\nwhich is not what the page says:\n%s", step.command, printed[i], step.output)
			}
		}
		return
	}
	s.t.Errorf("the page has no block that begins with $ %s", first)
}

// run runs a command that occurs in the text.
func (s *scene) run(command string) call {
	s.t.Helper()
	s.noted(command)
	return s.sh(command)
}

// noted records that the test covers a command of the text. It fails the test if the
// text does not have the command.
func (s *scene) noted(command string) {
	s.t.Helper()
	if _, ok := s.words[command]; !ok {
		s.t.Errorf("the page does not say `%s`", command)
	}
	s.words[command] = true
}

// complete fails the test for each command of the section that was neither run nor
// noted.
func (s *section) complete(t *testing.T) {
	t.Helper()
	for _, b := range s.blocks {
		if !b.run {
			t.Errorf("%s: the block that begins with $ %s is not run by this test", s.title, b.steps[0].command)
		}
	}
	for command, run := range s.words {
		if !run {
			t.Errorf("%s: `%s` is not run by this test", s.title, command)
		}
	}
}

// alike returns a command's output with the page's words in place of the test's, and
// without the parts that vary.
func (s *scene) alike(text string) string {
	var back []string
	for i := 0; i+1 < len(s.here); i += 2 {
		back = append(back, s.here[i+1], s.here[i])
	}
	return alike(strings.NewReplacer(back...).Replace(text))
}

// varies has the parts that differ from run to run.
var varies = []struct {
	what *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`\r`), ""},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d+`), "TIME"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?(ms|µs|s)\b`), "DURATION"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "DIGEST"},
	{regexp.MustCompile(`host \S+ PID \d+`), "host HOST PID N"},
	{regexp.MustCompile(`(?m)^(uptime_in_seconds):\d+$`), "$1:N"},
	{regexp.MustCompile(`(?m)^\d+ \d+ \d+\.\d+ \d+$`), "LATENCY"},
	{regexp.MustCompile(`-{2,}`), "--"},
	{regexp.MustCompile(` +`), " "},
	{regexp.MustCompile(`(?m) +$`), ""},
	{regexp.MustCompile(`\n+$`), ""},
}

func alike(text string) string {
	for _, v := range varies {
		text = v.what.ReplaceAllString(text, v.text)
	}
	return text
}

// TestRunbook runs the blocks of commands in core/OPERATIONS.md, and compares their
// outputs with the page. It also runs the commands in the text, except those that a
// scene only notes.
func TestRunbook(t *testing.T) {
	t.Parallel()
	scenes := map[string]func(s *scene){
		"Which store for which promise":  unfitScene,
		"A lock is stuck":                stuckScene,
		"Leases are lost":                lostScene,
		"Everything waits":               waitScene,
		"Redis failed over":              failoverScene,
		"A run died":                     runScene,
		"The quorum answers nothing":     quorumScene,
		"ZooKeeper does not answer":      zooKeeperScene,
		"A SQL database does not answer": sqlScene,
		"Logs and traces":                logScene,
		"Rights":                         rightsScene,
		"Sizing":                         sizingScene,
		"Alerts":                         elsewhere,
		"Metrics":                        elsewhere,
	}
	for _, s := range sections(t) {
		play := scenes[s.title]
		delete(scenes, s.title)
		if play == nil {
			s.complete(t)
			continue
		}
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			play(&scene{section: s, t: t})
			s.complete(t)
		})
	}
	for title := range scenes {
		t.Errorf("the page has no section %q", title)
	}
}
