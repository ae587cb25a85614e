package readme

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFirstPage_Short(t *testing.T) {
	text := read(t, "README.md")
	if n := len(strings.Fields(text)); n > 1500 {
		t.Errorf("README.md has %d words, 1,500 are allowed", n)
	}
	blocks := slices.DeleteFunc(blocksOf(t, []string{"README.md"}), func(b block) bool { return b.kind != program })
	if len(blocks) != 1 {
		t.Fatalf("README.md has %d whole programs, want the quick start alone", len(blocks))
	}
	lines := 0
	for line := range strings.Lines(blocks[0].code) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 30 {
		t.Errorf("the quick start has %d lines that are not blank, 30 are allowed", lines)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// anchors returns the names of a page's headings in links.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, "#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func TestPages_Links(t *testing.T) {
	for _, page := range append(pages(t), "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "core/OPERATIONS.md", "core/DESIGN.md", "core/PROOF.md") {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			to, anchor := m[1], m[2]
			if strings.Contains(to, "://") {
				continue
			}
			file := page
			if to != "" {
				file = path.Join(path.Dir(page), to)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links %s, which is not there", page, m[0])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s links %s, and %s has no such heading", page, m[0], file)
			}
		}
	}
}

func TestChangelog_Form(t *testing.T) {
	allowed := []string{"Added", "Changed", "Fixed", "Removed", "Security"}
	section, entry, lines := "", 0, 0
	for n, line := range strings.Split(read(t, "CHANGELOG.md"), "\n") {
		at := n + 1
		if name, ok := strings.CutPrefix(line, "### "); ok {
			if !slices.Contains(allowed, name) {
				t.Errorf("line %d: there is no section %q, but %q", at, name, allowed)
			}
			section, entry = name, 0
			continue
		}
		if strings.HasPrefix(line, "#") {
			section = ""
			continue
		}
		if section == "" || line == "" {
			continue
		}
		if utf8.RuneCountInString(line) > 120 {
			t.Errorf("line %d has more than 120 characters", at)
		}
		switch {
		case strings.HasPrefix(line, "- "):
			entry, lines = at, 1
		case entry > 0 && strings.HasPrefix(line, "  "):
			if lines++; lines > 2 {
				t.Errorf("line %d: the entry of line %d has more than two lines", at, entry)
			}
		default:
			t.Errorf("line %d is neither an entry nor its second line", at)
		}
	}
	if !strings.Contains(read(t, "CHANGELOG.md"), "## [Unreleased]\n") {
		t.Error("there is no section Unreleased")
	}
}

// TestPathsToEdit checks that the paths in the tables of CONTRIBUTING.md exist.
func TestPathsToEdit(t *testing.T) {
	found := 0
	for line := range strings.Lines(read(t, "CONTRIBUTING.md")) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		for _, m := range regexp.MustCompile("`((?:core|httpmw|grpcmw|taskmw|retry|examples|\\.ci)(?:/[\\w./]+)?)`").FindAllStringSubmatch(line, -1) {
			found++
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
			}
		}
	}
	if found < 40 {
		t.Errorf("CONTRIBUTING.md names %d paths, 40 are too few already", found)
	}
}
