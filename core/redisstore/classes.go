package redisstore

import (
	"errors"
	"regexp"
	"slices"
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

// refusalTexts are those without a code, except ERR.
var refusalTexts = []string{
	"max number of clients reached", "unknown command",
	"The user executing the script can't", // NOPERM inside a script
	"ACL failure in script",               // the same since 7.2
	"Protocol error: unauthenticated",     // NOAUTH to a command as long as ours
}

// inScript is the text that servers before 7.0 put before an error inside a script. They
// leave out the dash of its code if the error comes from a command, and not from a check
// before the command.
var inScript = regexp.MustCompile(`^(?:ERR Error running script \(call to f_\w+\): )?(?:@user_script: ?\d+: )+-?`)

// refused reports whether err is the reply of a server that changed nothing.
func refused(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := inScript.ReplaceAllString(reply.Error(), "")
	code, _, _ := strings.Cut(text, " ")
	text = strings.TrimPrefix(text, "ERR ")
	return refusals[code] || slices.ContainsFunc(refusalTexts, func(t string) bool { return strings.HasPrefix(text, t) })
}

// isReply tells that err is an error reply with this code.
func isReply(err error, code string) bool {
	return err != nil && redis.HasErrorPrefix(err, code)
}
