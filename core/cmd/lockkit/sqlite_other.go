//go:build !(((amd64 || arm64) && (darwin || freebsd || linux || openbsd || windows)) || (linux && (386 || arm || ppc64le || riscv64 || s390x)))

package main

import "errors"

func openSQLite(string) (*storeClient, error) {
	return nil, errors.New("SQLite is not supported on this system")
}

func fromSQLite(error) bool { return false }
