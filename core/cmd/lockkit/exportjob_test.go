//go:build unix

package main

import (
	"runtime"
	"time"
)

// StartLost starts a command whose lock is lost.
func StartLost(path string, args []string) error {
	// If this thread ended with the test, the servers that it has started would end too.
	defer runtime.UnlockOSThread() // locked by startJob
	j, err := startJob(path, args, nil, func() bool { return false })
	if j != nil {
		j.stop(time.Now())
	}
	return err
}
