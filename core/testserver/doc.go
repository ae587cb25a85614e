// Package testserver runs the servers and the further processes that tests need,
// on free ports of 127.0.0.1, and sees to it that they end.
//
// So far it has what all of them have in common; redistest, zktest and pgtest have
// the servers.
package testserver
