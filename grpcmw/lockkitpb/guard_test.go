package lockkitpb_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lockkit/lockkit/grpcmw/lockkitpb"
)

// TestGenerated compares the generated code with the .proto, without protoc. Both must
// have the same fields and extensions, with type and number.
func TestGenerated(t *testing.T) {
	t.Parallel()
	file := lockkitpb.File_lockkit_v1_guard_proto
	source, err := os.ReadFile(file.Path())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	line := func(in protoreflect.FullName, f protoreflect.FieldDescriptor) {
		kind := f.Kind().String()
		if m := f.Message(); m != nil {
			kind = strings.TrimPrefix(string(m.FullName()), "lockkit.v1.")
		}
		if f.IsList() {
			kind = "repeated " + kind
		}
		got = append(got, fmt.Sprintf("%s: %s %s = %d;", in, kind, f.Name(), f.Number()))
	}
	for i := range file.Messages().Len() {
		m := file.Messages().Get(i)
		for j := range m.Fields().Len() {
			line(protoreflect.FullName(m.Name()), m.Fields().Get(j))
		}
	}
	for i := range file.Extensions().Len() {
		x := file.Extensions().Get(i)
		line(x.ContainingMessage().FullName(), x)
	}
	var want []string
	var in string
	block, field := regexp.MustCompile(`^(?:message|extend) ([\w.]+) \{$`), regexp.MustCompile(`^  ([\w. ]+ = \d+;)$`)
	for text := range strings.Lines(string(source)) {
		text = strings.TrimRight(text, "\n")
		if m := block.FindStringSubmatch(text); m != nil {
			in = m[1]
		}
		if m := field.FindStringSubmatch(text); m != nil {
			want = append(want, in+": "+m[1])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("guard.pb.go has\n%s\nand guard.proto\n%s\ngo generate makes the one of the other", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := lockkitpb.E_Guard.TypeDescriptor().Number(); n < 50000 || n > 99999 {
		t.Errorf("the extension has the number %d, which is not for experiments: register it, and say so in guard.proto", n)
	}
}
