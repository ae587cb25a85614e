// Package models uses Spin to check small models of the kit's critical parts in every
// state that they can reach, and replays the models' events at a store. README.md
// describes the models' coverage.
//
// The package has only tests.
package models
