// Package retry repeats an operation until it succeeds, at a pace that a Policy sets.
// The policy, the context or the operation can end the run earlier.
//
// A Policy is an immutable value. Each run takes its pauses from a fresh sequence, so
// one policy can serve any number of goroutines. The pauses are computed by
// github.com/cenkalti/backoff/v4. The types of backoff are not part of this package's
// API, because they have the state of one run. The loop of backoff is not used, because
// that loop does not handle causes and deadlines of contexts.
//
// Do promises more than the loop of backoff:
//
//   - No policy retries without a pause. Zero fields have a stated default, and the zero
//     Policy makes one attempt. Validate refuses a policy that would be a hot loop.
//   - Max limits every pause, jitter included; only After can make a pause longer than
//     Max.
//   - If the context is already done, the operation does not run at all.
//   - When the context ends the run, the error matches the operation's last error, the
//     context's error and the context's cause.
//   - A pause that would reach the context's deadline is not begun: Do returns at
//     once.
//   - Only marks by Stop and After in the errors of this run's own operation have an
//     effect. An error that another library marks as permanent is like any other error,
//     and the marks in a nested Do have no effect after the nested Do has returned.
package retry
