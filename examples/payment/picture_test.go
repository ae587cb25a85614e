package main

import (
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write run.svg from a run")

// TestPicture compares run.svg, which the repository's README.md shows, with the output
// of a run. Numbers may differ. `go test ./examples/payment -run TestPicture -write`
// updates the picture.
func TestPicture(t *testing.T) {
	t.Parallel()
	printed, err := exec.CommandContext(t.Context(), build(t)).Output()
	if err != nil {
		t.Fatalf("%v:\n%s", err, printed)
	}
	out := string(printed)
	if *write {
		if err := os.WriteFile("run.svg", []byte(picture(out)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	svg, err := os.ReadFile("run.svg")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shape(string(svg)), shape(picture(out)); got != want {
		t.Errorf("run.svg differs from a run beyond its numbers: got %q, want %q", got, want)
	}
}

// shape returns the words of a picture. It replaces numbers and ignores line breaks,
// because these differ between runs.
func shape(svg string) string {
	lines := regexp.MustCompile(`(?s)<text [^>]*>(.*?)</text>`).FindAllStringSubmatch(svg, -1)
	var words []string
	for _, l := range lines {
		words = append(words, strings.Fields(regexp.MustCompile(`[0-9]+`).ReplaceAllString(html.UnescapeString(l[1]), "N"))...)
	}
	return strings.Join(words, " ")
}

// picture draws a terminal with the output of a run, light or dark according to the
// reader's preference.
func picture(out string) string {
	const width, perLine, height = 100, 7.85, 19
	lines := []string{"$ go run ./examples/payment"}
	for l := range strings.Lines(out) {
		l = strings.TrimRight(l, "\n")
		for len(l) > width {
			at := strings.LastIndex(l[:width], " ")
			lines, l = append(lines, l[:at]), "  "+l[at+1:]
		}
		lines = append(lines, l)
	}
	var b strings.Builder
	w, h := width*perLine+32, len(lines)*height+32
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img">
<title>A run of examples/payment: every order is charged once</title>
<style>
rect { fill: #f6f8fa; stroke: #d1d9e0 } text { fill: #1f2328; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }
.sum { fill: #116329; font-weight: 600 }
@media (prefers-color-scheme: dark) { rect { fill: #151b23; stroke: #3d444d } text { fill: #f0f6fc } .sum { fill: #7ee787 } }
</style>
<rect x=".5" y=".5" width="%.0f" height="%d" rx="6"/>
`, w, h, w, h, w-1, h-1)
	sum := regexp.MustCompile(`charged once|charged more|replicas:|after 503|got the receipt`)
	for i, l := range lines {
		class := ""
		if sum.MatchString(l) {
			class = ` class="sum"`
		}
		fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", 28+i*height, class, html.EscapeString(l))
	}
	return b.String() + "</svg>\n"
}
