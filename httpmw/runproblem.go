package httpmw

import (
	"context"
	"errors"
	"net/http"

	"github.com/lockkit/lockkit/core/once"
)

// callProblem is the answer where it could not be found out what a request asks
// for.
func callProblem(err error) Problem {
	p := keyProblem(err)
	switch p.Status {
	case http.StatusBadRequest:
		p.Type, p.Title = "idempotency-key-invalid", idempotencyHeader+" missing or not allowed"
		p.Detail = "The request does not say what it is."
		if own := (*keyError)(nil); errors.As(err, &own) {
			p.Detail = "The request does not say what it is: " + own.detail + "."
		}
	case http.StatusRequestEntityTooLarge:
		// in the same words
	default:
		p.Type, p.Detail = "idempotency-failed", "Who asks, or for what, could not be found out."
	}
	return p
}

// runProblem is the answer where there is no answer of the handler.
func runProblem(ctx context.Context, err error) Problem {
	switch {
	case errors.Is(err, once.ErrMismatch):
		return Problem{
			Type: "idempotency-mismatch", Title: idempotencyHeader + " used before", Status: http.StatusUnprocessableEntity,
			Detail: "The key was used with another request. A new request needs a new key.", Err: err,
		}
	case errors.Is(err, once.ErrIndeterminate):
		return Problem{
			Type: "idempotency-indeterminate", Title: "Outcome unknown", Status: http.StatusConflict,
			Detail: "An earlier run of this request broke off, and may have had its effect. It is not run again.", Err: err,
		}
	case errors.Is(err, once.ErrUnreplayable):
		return Problem{
			Type: "idempotency-unreplayable", Title: "Answer gone", Status: http.StatusGone,
			Detail: "This request was carried out before, and its answer was not kept. It is not run again.", Err: err,
		}
	case errors.Is(err, errAnswer):
		return runFailed(Problem{Status: http.StatusInternalServerError, Title: "Internal error", Err: err})
	}
	p := acquireProblem(ctx, err)
	switch {
	case p.Status == http.StatusConflict:
		p.Type, p.Title = "idempotency-in-progress", "In progress"
		p.Detail = "This request is being worked on. Ask again for its answer."
	case p.Status == http.StatusInternalServerError:
		p = runFailed(p)
	case p.Type == timeout:
		p.Type = runTimeout
		p.Detail = "The request's time was up before there was an answer."
	default:
		p.Type, p.Title = "idempotency-unavailable", "Answers not available"
		p.Detail = "Whether this request was carried out before cannot be found out now. It was not run."
	}
	return p
}

func runFailed(p Problem) Problem {
	p.Type, p.Detail = "idempotency-failed", "What is kept of this request cannot be used. It was not run."
	return p
}
