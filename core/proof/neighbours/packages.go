package neighbours

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

//go:embed versions.txt java python node
var embedded embed.FS

// resolveLimit limits the time of each program that downloads packages or builds a
// driver.
const resolveLimit = 5 * time.Minute

// kit has the parts of a driver.
type kit struct {
	name    string   // first word of its lines in versions.txt
	files   []string // source files in this directory
	install string   // advice for the installation of needs
	needs   []string // programs
	// resolve downloads the packages into dir, and build then builds the driver. Every
	// error of resolve counts as an unreachable registry.
	resolve, build func(dir string, packages []string) error

	once sync.Once
	dir  string
	err  error
}

// resolving keeps two kits from writing to a local repository of packages at the same
// time.
var resolving sync.Mutex

// missing is the reason why this machine cannot run a driver.
type missing struct{ error }

// require returns the directory of the driver. If this machine cannot run the driver,
// require skips the test.
func (k *kit) require(t testing.TB) string {
	t.Helper()
	k.once.Do(func() { k.dir, k.err = k.prepare() })
	if m := (missing{}); errors.As(k.err, &m) {
		testserver.Missing(t, m.Error())
	}
	if k.err != nil {
		t.Fatalf("neighbours: %s: %v", k.name, k.err)
	}
	return k.dir
}

// prepare returns the directory of the driver. The first process that needs the
// directory fills it. The directory's name has a hash of the driver's packages and
// files.
func (k *kit) prepare() (string, error) {
	for _, name := range k.needs {
		if _, err := exec.LookPath(name); err != nil {
			return "", missing{fmt.Errorf("%s is not installed (%s)", name, k.install)}
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "lockkit-neighbours")
	packages, err := versions(k.name)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, packages)
	texts := make(map[string][]byte)
	for _, name := range k.files {
		text, err := embedded.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d %s", name, len(text), text)
		texts[path.Base(name)] = text
	}
	dir := filepath.Join(cache, k.name+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(cache, "draft-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(draft, name), text, 0o600); err != nil {
			return "", err
		}
	}
	resolving.Lock()
	err = k.resolve(draft, packages)
	resolving.Unlock()
	if err != nil {
		return "", missing{fmt.Errorf("the packages of %s cannot be had: %w", k.name, err)}
	}
	if k.build != nil {
		if err := k.build(draft, packages); err != nil {
			return "", err
		}
	}
	if err := os.Rename(draft, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		}
	}
	return dir, nil
}

// versions returns the packages that versions.txt lists for a kit.
func versions(name string) (packages []string, err error) {
	text, err := embedded.ReadFile("versions.txt")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == name {
			packages = append(packages, words[1])
		}
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("versions.txt has nothing for %s", name)
	}
	return packages, nil
}

func call(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.1000s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
