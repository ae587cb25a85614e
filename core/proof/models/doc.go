// Package models checks small models of the kit's dangerous parts in every state that they
// can reach, with Spin, and replays what the models do at a store. README.md says what the
// models cover.
//
// The package has only tests.
package models
