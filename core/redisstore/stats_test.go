package redisstore_test

import (
	"fmt"
	"strings"
)

// statOf returns the number of calls of a command in INFO commandstats.
func statOf(info, command string) int {
	for line := range strings.Lines(info) {
		var calls int
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "cmdstat_"+command+":calls=%d,", &calls); n == 1 {
			return calls
		}
	}
	return 0
}
