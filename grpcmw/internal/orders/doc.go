// Package orders has the services that the tests of grpcmw and of its adapters call.
package orders

//go:generate sh generate.sh
