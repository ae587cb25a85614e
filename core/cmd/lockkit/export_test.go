package main

import "time"

// Main is the program, for tests that run it in processes of their own.
var Main = main

// SetAnswerLimit is for such a process, before Main.
func SetAnswerLimit(d time.Duration) { answerLimit = d }
