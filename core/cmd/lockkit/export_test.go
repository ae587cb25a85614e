package main

import "time"

// Main exports main, for tests that run the program in separate processes.
var Main = main

// SetAnswerLimit sets answerLimit. Such a process calls it before Main.
func SetAnswerLimit(d time.Duration) { answerLimit = d }

// GuardName is the argument of a guard. Tests start guards by StartLost.
const GuardName = guardName

// Lockkit exports lockkit, for tests that run the program in their own process. Such a
// process calls Quiet before.
var (
	Lockkit = lockkit
	Quiet   = quiet
)
