package neighbours

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// javaKit returns the kit of a driver in Java. The class main extends the class Driver.
func javaKit(name, main string) *kit {
	return &kit{
		name: name, files: []string{"java/Driver.java", "java/" + main + ".java"},
		install: "apt-get install default-jdk-headless maven, or brew install openjdk maven",
		needs:   []string{"java", "javac", "mvn"},
		resolve: func(dir string, packages []string) error {
			plugin, err := versions("maven")
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom(packages)), 0o600); err != nil {
				return err
			}
			return call(dir, "mvn", "-B", "-q", plugin[0]+":copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars")
		},
		build: func(dir string, _ []string) error {
			return call(dir, "javac", "-nowarn", "-d", "classes", "-cp", filepath.Join("jars", "*"), "Driver.java", main+".java")
		},
	}
}

// pom returns the project file of a Maven project that only depends on packages.
func pom(packages []string) string {
	var s strings.Builder
	s.WriteString("<project><modelVersion>4.0.0</modelVersion><groupId>neighbours</groupId><artifactId>neighbours</artifactId><version>1</version><dependencies>\n")
	for _, p := range packages {
		part := strings.Split(p, ":")
		fmt.Fprintf(&s, "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", part[0], part[1], part[2])
	}
	s.WriteString("</dependencies></project>\n")
	return s.String()
}

// startJava starts the class main of a kit. The JVM's options shorten the start of a
// small program.
func startJava(t testing.TB, k *kit, main string, args ...string) *Driver {
	t.Helper()
	dir := k.require(t)
	path := filepath.Join(dir, "classes") + string(os.PathListSeparator) + filepath.Join(dir, "jars", "*")
	args = append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m", "-cp", path, main}, args...)
	return Start(t, exec.Command("java", args...))
}
