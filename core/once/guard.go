package once

import (
	"context"
	"encoding/json"
	"fmt"
)

// Guard decorates fn: requests for which call returns the same Call have one answer,
// stored as JSON. The decorated function fails with call's error, or with an error of
// Do.
//
// The caller whose call runs fn gets the result of fn unchanged, together with an error
// if the result could not be saved. If the result cannot be written as JSON, the run is
// stored as unreplayable. After NotFinal the result is neither written nor stored. If a
// stored result cannot be read as a Resp, because that type has changed, the decorated
// function fails, and fn is not run again.
func Guard[Req, Resp any](o *Once, call func(Req) (Call, error),
	fn func(context.Context, Req) (Resp, error),
) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		c, err := call(req)
		if err != nil {
			return resp, err
		}
		var unwritten, worked error
		out, err := o.Do(ctx, c, func(ctx context.Context) (Answer, error) {
			if resp, worked = fn(ctx, req); worked != nil {
				return Answer{}, worked
			}
			var a Answer
			if !stillFinal(ctx) {
				return a, nil
			}
			if a.Value, unwritten = json.Marshal(resp); unwritten != nil {
				a.Unreplayable = true
			}
			return a, nil
		})
		switch {
		case err == nil && unwritten != nil:
			err = fmt.Errorf("once %s: %w: %w", o.labelOf(&c), ErrUnreplayable, unwritten)
		case err == nil && (out.Replayed || worked != nil): // or what Commit has saved
			if err = json.Unmarshal(out.Value, &resp); err != nil {
				var none Resp
				return none, fmt.Errorf("once %s: kept answer: %w", o.labelOf(&c), err)
			}
		}
		return resp, err
	}
}
