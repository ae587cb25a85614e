// Package retry repeats an operation until it succeeds, at a pace that a Policy sets.
//
// A Policy is an immutable value. Each run takes its pauses from a fresh sequence, so
// one policy can serve any number of goroutines. The pauses grow as those of
// github.com/cenkalti/backoff/v4. None of its types appear here: they carry the state
// of one run, and its loop knows neither causes nor deadlines.
//
// Do promises more than that loop:
//
//   - No policy spins. Zero fields have a stated default, the zero Policy is one
//     attempt, and Validate refuses a policy that would be a hot loop.
//   - Max bounds every pause, jitter included; only a longer After goes beyond it.
//   - On a context that is done, the operation does not run, not even once.
//   - When the context ends the run, the error matches the operation's last error, the
//     context's error and the context's cause.
//   - A pause that would reach the context's deadline is not begun: Do returns at
//     once.
//   - Only Stop and After, given by this run's own operation, steer the run. An error
//     that another library marks as permanent is like any other, and the marks of a
//     nested Do are gone when that Do returns.
package retry
