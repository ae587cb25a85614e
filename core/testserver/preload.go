package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// preload writes the library that the function library compiles into dir, and creates
// the file that controls the library. A program that is started with the variables in
// env loads the library and finds the file. If this machine cannot compile the library,
// preload calls Missing. The message begins with the text what, which names the missing
// effect.
func preload(t testing.TB, dir, name, what string, library func() ([]byte, error)) (control *os.File, env []string) {
	t.Helper()
	text, err := library()
	if err != nil {
		Missing(t, fmt.Sprintf("%s: %v (it needs Linux and a C compiler: apt-get install gcc libc6-dev)", what, err))
	}
	path := filepath.Join(dir, "lib.so")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatalf("testserver: %s: %v", what, err)
	}
	control, err = os.OpenFile(filepath.Join(dir, "control"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatalf("testserver: %s: %v", what, err)
	}
	t.Cleanup(func() { _ = control.Close() })
	return control, []string{"LD_PRELOAD=" + path, name + "=" + control.Name()}
}

func compile(source []byte) ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("this is %s", runtime.GOOS)
	}
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	text, library := filepath.Join(dir, "lib.c"), filepath.Join(dir, "lib.so")
	if err := os.WriteFile(text, source, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, text).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(library)
}
