package main

import "time"

// Main exports main, for tests that run the program in separate processes.
var Main = main

// SetAnswerLimit sets answerLimit in such a process before Main is called.
func SetAnswerLimit(d time.Duration) { answerLimit = d }
