package pipeline

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Class contains the consequences of an error reply. The zero value is for unknown
// replies: the outcome is unknown.
type Class struct {
	// Unchanged is set if the server has changed nothing. Inside a script, a command's
	// error occurs at the script's first write or before. The exception is NOPERM,
	// which can occur later. All scripts in core/redisstore/lua (the kit's own keys,
	// plain_*.lua and redisson_*.lua) then leave all holds as they are. TestHalfAScript
	// and TestHalfAScript_ForeignKeys in core/redisstore show that. The table under
	// Errors in core/store/doc.go has the Locker's reactions.
	Unchanged bool
	// Advice precedes the server's message.
	Advice string
	// Hint is the advice if the server is not fit for locks, or "".
	Hint string
	// displaced is set if the connection leads to a server that cannot serve now.
	// Another server may have taken over its name or role. The idle connections of a
	// single-server client are then closed, so that later calls dial.
	displaced bool
}

var (
	refusal   = Class{Unchanged: true}
	displaced = Class{Unchanged: true, displaced: true}
)

// scriptless is the class for servers that run no scripts, or refuse this script. They
// refuse a script before they start it.
var scriptless = Class{Unchanged: true, Hint: "the server does not run the scripts: core/SERVERS.md says which do, and what to set"}

// classes maps the code of an error reply to its class.
var classes = map[string]Class{
	"ASK":         refusal,   // the slot is about to move
	"BUSY":        refusal,   // a script runs for too long
	"CLUSTERDOWN": displaced, // the server is cut off, or some slots are not served
	"CROSSSLOT":   refusal,   // keys of several slots
	"LOADING":     displaced, // the server has started, and can become a replica
	"MASTERDOWN":  displaced, // a replica without its master
	"MISCONF":     {Unchanged: true, Hint: "the server fails to save: see its log"},
	"MOVED":       {Unchanged: true, displaced: true, Hint: "the server is a node of a Cluster: use a *redis.ClusterClient"},
	"NOAUTH":      displaced, // the connection has lost its user, or never had one
	"NOPERM":      refusal,   // the user lacks a right
	"NOREPLICAS":  {Unchanged: true, displaced: true, Hint: "too few replicas are in step: connect as many as min-replicas-to-write asks for"},
	"NOSCRIPT":    refusal, // the server does not know the script
	"OOM":         {Unchanged: true, Hint: "the memory is used up: raise maxmemory, or delete other keys"},
	"READONLY":    {Unchanged: true, displaced: true, Advice: "the server is a replica (a failover client with ReplicaOnly talks to one)"},
	"TRYAGAIN":    refusal, // the slot moves, and its keys are on two servers
	"UNKILLABLE":  refusal, // the script that runs for too long has already written
	"WRONGPASS":   refusal, // from connecting: the client closes the connection
	"WRONGTYPE":   {Unchanged: true, Advice: "another program has a value of its own under this key (use another WithPrefix)"},
}

// texts maps the first words of an error reply with the code ERR, or with no code, to
// its class.
var texts = map[string]Class{
	"max number of clients reached":       refusal, // the server closes the connection
	"unknown command":                     {Unchanged: true, Hint: "the server lacks the command, or has renamed it: undo rename-command"},
	"bad lua script":                      scriptless,
	"command eval not support":            scriptless, // and evalsha
	"command evalsha not support":         scriptless,
	"This instance has Lua scripting":     scriptless, // support disabled
	"The user executing the script can't": refusal,    // NOPERM inside a script
	"ACL failure in script":               refusal,    // the same since 7.2
	"Protocol error: unauthenticated":     displaced,  // NOAUTH for a command as long as ours
}

// inScript matches the text that servers before 7.0 add before an error inside a
// script. If the error comes from a command, and not from a check before the command,
// they omit the dash before its code.
var inScript = regexp.MustCompile(`^(?:ERR Error running script \(call to f_\w+\): )?(?:@user_script: ?\d+: )+-?`)

// ClassOf returns the class of an error reply, and the zero value for any other error.
func ClassOf(err error) Class {
	if err == nil {
		return Class{}
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return Class{}
	}
	text := inScript.ReplaceAllString(reply.Error(), "")
	code, _, _ := strings.Cut(text, " ")
	if c, known := classes[code]; known {
		return c
	}
	text = strings.TrimPrefix(text, "ERR ")
	for begin, c := range texts {
		if strings.HasPrefix(text, begin) {
			return c
		}
	}
	return Class{}
}
