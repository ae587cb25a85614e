package testserver

import (
	"os"
	"testing"
)

// asProgram is the environment variable that makes a process of Main run the program.
const asProgram = "LOCKKIT_MAIN_OF_TEST"

// Main runs the tests of a program, in the TestMain of its package. Processes that the
// tests start from os.Args[0] call main instead, so no test has to build the program. The
// race detector watches the program if it watches the tests. Main sets environment
// variables that all children of the tests inherit.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Setenv(asProgram, "1")
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=0") // no sleep at the exit
	os.Exit(m.Run())
}
