package httpretry

import "fmt"

// UnknownError is returned when a request may have been carried out and no response says
// whether it was. The same request may be sent again under the same key, at any time while
// the server stores its responses. The same order must not be sent under another key.
//
// Reading the body of a response also fails with an UnknownError, where the body ends
// early. Its Status is then that of the response.
type UnknownError struct {
	// Key is the Idempotency-Key of all tries. The error's text does not have it.
	Key string
	// Tries is how many tries there were, without those that base made by itself.
	Tries int
	// Status is that of the last try's response, 0 if it had none.
	Status int
	// Err is why the last try failed.
	Err error
}

// Error returns the number of tries and the text of Err.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("httpretry: outcome unknown (tries: %d): %v", e.Tries, e.Err)
}

// Unwrap returns Err.
func (e *UnknownError) Unwrap() error { return e.Err }
