package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notPromised is the heading of the part that every recipe's page has.
const notPromised = "## What it does not promise"

// TestRecipePages checks that each recipe is listed, and that its page says what the
// recipe does not promise.
func TestRecipePages(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(filepath.Join(root, "examples", "recipes"))
	if err != nil {
		t.Fatal(err)
	}
	list, examples := read(t, "examples/recipes/README.md"), read(t, "examples/README.md")
	recipes := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		recipes++
		name := e.Name()
		page := "examples/recipes/" + name + "/README.md"
		if items := itemsUnder(read(t, page), notPromised); items == 0 {
			t.Errorf("%s has no items under %q", page, notPromised)
		}
		if !strings.Contains(list, "]("+name+"/README.md)") {
			t.Errorf("examples/recipes/README.md does not link %s", name)
		}
		if !regexp.MustCompile(`(?m)^- .examples/recipes.:.*\b` + name + `\b`).MatchString(examples) {
			t.Errorf("examples/README.md does not list %s", name)
		}
	}
	if recipes < 9 {
		t.Errorf("found %d recipes", recipes)
	}
}

// TestPages_Limits checks the other pages that have to say what they do not
// promise.
func TestPages_Limits(t *testing.T) {
	t.Parallel()
	for page, headings := range map[string][]string{
		"httpmw/README.md":                  {"### What a key does not promise", "### What it does not promise"},
		"httpmw/stdmw/frameworks/README.md": {notPromised},
		"httpmw/httpretry/doc.go":           {"// # What it does not promise"},
		"grpcmw/connectmw/README.md":        {notPromised},
		"taskmw/watermillmw/README.md":      {notPromised},
	} {
		for _, heading := range headings {
			if itemsUnder(read(t, page), heading) == 0 {
				t.Errorf("%s has no items under %q", page, heading)
			}
		}
	}
}

func itemsUnder(page, heading string) int {
	_, under, found := strings.Cut(page, "\n"+heading+"\n")
	if !found {
		return 0
	}
	if end := regexp.MustCompile(`(?m)^(//\s*)?#+ `).FindStringIndex(under); end != nil {
		under = under[:end[0]]
	}
	return len(regexp.MustCompile(`(?m)^(//\s+)?- `).FindAllString(under, -1))
}
