package keys_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
)

// check fails the test unless got is want and err is nil. With a fault, check instead
// fails the test unless got is empty and err is an *Error with fault in its text.
func check(t *testing.T, got string, err error, want, fault string) {
	t.Helper()
	if fault == "" {
		if got != want || err != nil {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
		return
	}
	var own *keys.Error
	ok := errors.As(err, &own)
	if got != "" || !ok || !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), fault) {
		t.Errorf("got %q, %v; want ErrInvalid that says %q", got, err, fault)
	} else if err.Error() != "test: "+own.Detail() {
		t.Errorf("the error is %q, its detail %q", err, own.Detail())
	}
}

// panics fails the test unless f panics with a text that contains words.
func panics(t *testing.T, what, words string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, _ := recover().(string); !strings.HasPrefix(text, "test: ") || !strings.Contains(text, words) {
			t.Errorf("%s: panicked with %q, want %q", what, text, words)
		}
	}()
	f()
}

func TestSource(t *testing.T) {
	t.Parallel()
	s := keys.NewSource("test", "header", "X-Order")
	longest := strings.Repeat("k", 512)

	t.Run("part without control characters", func(t *testing.T) {
		t.Parallel()
		for _, value := range []string{"42", " 4 2 ", "a:b{%}", "größe", longest} {
			got, err := s.Part(value)
			check(t, got, err, value, "")
		}
		for value, fault := range map[string]string{
			"":            `the header "X-Order" is empty`,
			longest + "k": "is too long, 512 bytes are allowed",
			"a\xff":       "is not valid UTF-8",
			"a\nb":        "contains a control character",
			"a\x1fb":      "contains a control character",
			"\u0085":      "contains a control character",
		} {
			got, err := s.Part(value)
			check(t, got, err, "", fault)
			if err != nil && value != "" && strings.Contains(err.Error(), value) {
				t.Errorf("%q shows the value", err)
			}
		}
	})

	t.Run("one of several values", func(t *testing.T) {
		t.Parallel()
		for fault, values := range map[string][]string{
			"": {"1"}, `the header "X-Order" is missing`: {}, "is there more than once": {"1", "1"},
		} {
			got, err := s.Only(values)
			check(t, got, err, "1", fault)
		}
	})

	t.Run("source without a name", func(t *testing.T) {
		t.Parallel()
		if err := (keys.Source{Adapter: "test", Kind: "body"}).Bad("is empty"); err.Error() != "test: the body is empty" {
			t.Errorf("got %v", err)
		}
		panics(t, "no name", "the name of a header is empty", func() { keys.NewSource("test", "header", "") })
	})
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	t.Run("a name that Name takes", func(t *testing.T) {
		t.Parallel()
		l := locker(t)
		for _, name := range []string{
			"a", "Order.pay_2-x", strings.Repeat("x", 64), "", "a:b", "a b", "größe", "a\n", "{a}", "a/b", strings.Repeat("x", 65), strings.Repeat(":", 100),
		} {
			_, refused := adapter.Check(l, core.Name(name))
			if err := keys.CheckName(name); (err == nil) != (refused == nil) || err != nil && len(err.Error()) > 170 {
				t.Errorf("%q: got %v, core says %v", name, err, refused)
			}
		}
	})
	t.Run("a label may be longer", func(t *testing.T) {
		t.Parallel()
		if long := strings.Repeat("x", 65); !keys.IsLabel(long) || keys.IsLabel(long+"\u212a") || keys.IsLabel("") {
			t.Error("labels are taken for none, or the reverse")
		}
	})
}
