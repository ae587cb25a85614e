//go:build clientgo

// Command clientgo is a replica of a service that moves from client-go's leader election
// to package leader, or the API server of that election. Package neighbours drives both:
// its driver.go describes the lines of their standard input and output.
//
//	clientgo apiserver
//	clientgo overtake
//	clientgo RELEASE IDENTITY APISERVER REDIS LEDGER
//
// An API server has the command "address", and overtake "holder". A replica has the command
// "leave", which ends its part in the election in order. The releases are "client-go",
// "both" and "leader". The ledger is a URL to which the leader reports its work.
//
// client-go takes minutes to compile. The tag keeps it out of what is done with every package.
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

// start starts what the arguments name, and returns the function that carries out its commands.
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
