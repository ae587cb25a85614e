package httpretry

import "fmt"

// UnknownError is returned when a request may have been carried out and no response
// reports its outcome. The same request can be sent again under the same key, at any
// time while the server stores its responses. The same order must not be sent under
// another key.
//
// Reading the body of a response also fails with an UnknownError, if the body ends
// early. The error's Status is the status of that response.
type UnknownError struct {
	// Key is the Idempotency-Key of all tries. The error's text does not have it.
	Key string
	// Tries is the number of tries, without repetitions that base made.
	Tries int
	// Status is the status of the last try's response. It is 0 if there was no
	// response, or if the request's context is done.
	Status int
	// Err is the reason for the failure of the last try.
	Err error
}

// Error returns the number of tries and the text of Err.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("httpretry: outcome unknown (tries: %d): %v", e.Tries, e.Err)
}

// Unwrap returns Err.
func (e *UnknownError) Unwrap() error { return e.Err }
