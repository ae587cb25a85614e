// Package orders has the services for the tests of grpcmw and of its adapters.
package orders

//go:generate sh generate.sh
