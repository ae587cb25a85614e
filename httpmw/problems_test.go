package httpmw_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestProblemsPage checks that each type of problem has a section on the page of its
// link.
func TestProblemsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("PROBLEMS.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var types, sections []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(\d{3})  ([a-z-]+)  `).FindAllStringSubmatch(string(doc), -1) {
		if i := strings.Index(string(page), "\n## "+m[2]+"\n\n**"+m[1]); i < 0 {
			t.Errorf("PROBLEMS.md has no section of %s with %s", m[2], m[1])
		}
		types = append(types, m[2])
	}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, m[1])
	}
	slices.Sort(types)
	slices.Sort(sections)
	if types = slices.Compact(types); len(types) < 14 || !slices.Equal(types, sections) {
		t.Errorf("doc.go has the types %q, PROBLEMS.md %q", types, sections)
	}
}

func TestProblemHeaders(t *testing.T) { onEachKey(t, testProblemHeaders) }

func testProblemHeaders(t *testing.T, mw framework) {
	t.Parallel()
	s := mw.newSite(t)
	s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), mustNotRun(t))
	s.POST("/urn", mw.Idempotent(s.runs(), mw.AnyCaller(), mw.ProblemBase("urn:problem:")), mustNotRun(t))
	r := s.pay("", "/", "")
	r.problem(t, http.StatusBadRequest)
	link := "<" + base + `idempotency-key-invalid>; rel="describedby"; type="text/html"`
	if r.header.Get("Link") != link || r.header.Get("Content-Language") != "en" {
		t.Errorf("got %v", r.header)
	}
	r = s.pay("", "/urn", "")
	r.problem(t, http.StatusBadRequest)
	if r.header.Get("Link") != "" {
		t.Errorf("got %v", r.header)
	}
}
