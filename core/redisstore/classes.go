package redisstore

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// refusals are the error replies that leave the state as it was. Inside a script they
// come up at its first write. The exception is NOPERM: it can come later, and the
// script then undoes its writes.
var refusals = map[string]bool{
	"ASK": true, "BUSY": true, "CLUSTERDOWN": true, "CROSSSLOT": true, "LOADING": true, "MASTERDOWN": true,
	"MISCONF": true, "MOVED": true, "NOAUTH": true, "NOPERM": true, "NOREPLICAS": true, "NOSCRIPT": true,
	"OOM": true, "READONLY": true, "TRYAGAIN": true, "UNKILLABLE": true, "WRONGPASS": true, "WRONGTYPE": true,
}

// refusalTexts are those without a code.
var refusalTexts = []string{
	"ERR max number of clients reached", "ERR unknown command",
	"ERR The user executing the script can't", // NOPERM inside a script
	"ERR ACL failure in script",               // the same since 7.2
	"ERR Protocol error: unauthenticated",     // NOAUTH to a command as long as ours
}

// innerCode finds the code of an error inside a script in the text of servers
// before 7.0, which put it behind their own.
var innerCode = regexp.MustCompile(`^ERR Error running script.*: -([A-Z]+) `)

// refused tells that err is the reply of a server that changed nothing.
func refused(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := reply.Error()
	code, _, _ := strings.Cut(text, " ")
	if m := innerCode.FindStringSubmatch(text); m != nil {
		code = m[1]
	}
	if refusals[code] {
		return true
	}
	for _, p := range refusalTexts {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

// isReply tells that err is an error reply with this code.
func isReply(err error, code string) bool {
	return err != nil && redis.HasErrorPrefix(err, code)
}
