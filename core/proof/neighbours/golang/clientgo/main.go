//go:build clientgo

// Command clientgo runs a replica of a service that moves from client-go's leader
// election to package leader, or the API server of that election. Package neighbours
// drives both. Its driver.go describes the lines of their standard input and output.
//
//	clientgo apiserver
//	clientgo overtake
//	clientgo RELEASE IDENTITY APISERVER REDIS LEDGER
//
// The API server has the command "address", and overtake has the command "holder". A
// replica has the command "leave", by which it leaves the election gracefully. The
// releases are "client-go", "both" and "leader". LEDGER is a URL to which the leader
// reports its work.
//
// client-go takes minutes to compile. The build tag keeps it out of builds of all
// packages.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

func main() {
	obey, err := start(os.Args[1:])
	if err != nil {
		fmt.Println("0 error error", err)
		return
	}
	fmt.Println("0 ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		fmt.Println(words[0], obey(words[2]))
	}
}

// start starts the API server, the function overtake or the replica, as args say. It
// returns the function that carries out the commands.
func start(args []string) (obey func(verb string) string, err error) {
	switch {
	case len(args) == 1 && args[0] == "apiserver":
		return serveLeases()
	case len(args) == 1 && args[0] == "overtake":
		holder, err := overtake()
		return func(string) string { return holder }, err
	case len(args) != 5:
		return nil, fmt.Errorf("%d arguments", len(args))
	}
	return join(args[0], args[1], args[2], args[3], args[4])
}
