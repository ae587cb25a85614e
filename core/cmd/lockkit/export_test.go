package main

// Main is the program, for tests that run it in processes of their own.
var Main = main
