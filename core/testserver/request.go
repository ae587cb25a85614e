package testserver

import (
	"slices"
	"strings"
)

// Request is one request that a client sent through a proxy.
type Request struct {
	// Name is the name of the request. For Redis it is the command in lower case, for
	// ZooKeeper the operation, such as "create" or "getData", for PostgreSQL "query" or
	// "sync", for MySQL "query", "prepare", "execute" or "ping", and for HTTP the
	// method.
	Name string
	// Args are the words of the request. For Redis they are all words of the command.
	// For a query they are the statement, for a prepare "prepare" and the statement. For
	// HTTP they are the method and the target.
	Args []string

	Script string   // Redis: "acquire", "extend" or "release" for a command of package redisstore
	Path   string   // ZooKeeper: the node, or the first node of a "multi"; HTTP: the URL's path
	Inner  []string // ZooKeeper: the names of the operations in a "multi"

	Link int // the number of its connection, from 1
}

// Creates reports whether a request to ZooKeeper is a "create", alone or in a "multi". A
// "createContainer" does not count.
func (r Request) Creates() bool { return r.Name == "create" || slices.Contains(r.Inner, "create") }

// lower returns the first of the words, in lower case.
func lower(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return strings.ToLower(words[0])
}

// Match selects requests. An empty field selects all requests.
type Match struct {
	Command string             // the request's Name, in any case
	Script  string             // the request's Script
	Arg     string             // a part of one of Args; the first of Args counts only for a "query"
	If      func(Request) bool // a further condition
	Skip    int                // the number of selected requests that pass first
	Times   int                // the number of requests that the fault hits; 0 means 1, -1 all
}

// Statement selects the queries to PostgreSQL or MySQL that contain all parts.
func Statement(parts ...string) Match {
	return Match{Command: "query", If: func(r Request) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(r.Args[0], part) })
	}}
}

func (m Match) matches(r Request) bool {
	if m.Command != "" && !strings.EqualFold(m.Command, r.Name) || m.Script != "" && m.Script != r.Script {
		return false
	}
	args := r.Args
	if r.Name != "query" {
		args = args[min(1, len(args)):]
	}
	if m.Arg != "" && !slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, m.Arg) }) {
		return false
	}
	return m.If == nil || m.If(r)
}
