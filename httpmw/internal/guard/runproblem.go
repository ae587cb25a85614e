package guard

import (
	"context"
	"errors"
	"net/http"

	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/core/once"
)

// callProblem returns the problem for a request without a valid key, scope or
// fingerprint.
func callProblem(err error) Problem {
	p := keyProblem(err)
	switch p.Status {
	case http.StatusBadRequest:
		p.Type, p.Title = "idempotency-key-invalid", "Idempotency key missing or not allowed"
		p.Detail = "The request has no key."
		var own *keys.Error
		if errors.As(err, &own) {
			p.Detail = sentence(own)
		}
	case http.StatusRequestEntityTooLarge:
		// the texts of keyProblem apply
	default:
		p.Type, p.Detail = "idempotency-failed", misconfigured("Idempotency", err)
	}
	return p
}

// runProblem returns the problem for a request that gets neither a handler's response
// nor a replay.
func runProblem(ctx context.Context, err error) Problem {
	switch {
	case errors.Is(err, once.ErrMismatch):
		return Problem{
			Type: "idempotency-mismatch", Title: "Idempotency key used before", Status: http.StatusUnprocessableEntity,
			Detail: "The key was used with another request, which may have been carried out. " +
				"Repeat that request to get its answer.", Err: err,
		}
	case errors.Is(err, once.ErrIndeterminate):
		return Problem{
			Type: "idempotency-indeterminate", Title: "Outcome unknown", Status: http.StatusConflict,
			Detail: "An earlier run broke off and may have had its effect. It is not run again.", Err: err,
		}
	case errors.Is(err, once.ErrUnreplayable):
		return Problem{
			Type: "idempotency-unreplayable", Title: "Answer gone", Status: http.StatusGone,
			Detail: "The request was carried out before. Its answer was not kept.", Err: err,
		}
	case errors.Is(err, errAnswer):
		return runFailed(Problem{Status: http.StatusInternalServerError, Title: "Internal error", Err: err})
	}
	p := acquireProblem(ctx, err)
	switch {
	case p.Status == http.StatusConflict:
		p.Type, p.Title = "idempotency-in-progress", "In progress"
		p.Detail = "The request is in progress. Ask again for its answer."
	case p.Status == http.StatusInternalServerError:
		p = runFailed(p)
	case p.Type == timeout:
		p.Type = runTimeout
		p.Detail = "The request timed out before there was an answer."
	default:
		p.Type, p.Title = "idempotency-unavailable", "Answers not available"
		p.Detail = "Answers are unavailable. The request was not run."
	}
	return p
}

func runFailed(p Problem) Problem {
	p.Type, p.Detail = "idempotency-failed", "The kept answer cannot be used. The request was not run."
	return p
}
