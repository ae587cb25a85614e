package once

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Guard wraps fn so that requests for which call returns the same Call have one answer,
// stored as JSON. The returned function fails with the error of call, or with an error
// of Do.
//
// The caller whose call runs fn gets the result of fn unchanged. If the result could
// not be saved, this caller also gets an error. If fn has saved another answer with
// Commit, this caller gets the committed answer, as later callers do. If the result
// cannot be encoded as JSON, the run is stored as unreplayable. After NotFinal the
// result is neither encoded nor stored. If a stored result cannot be decoded as a Resp,
// for example after a change of the type, the returned function fails. fn is then not
// run again.
func Guard[Req, Resp any](o *Once, call func(Req) (Call, error),
	fn func(context.Context, Req) (Resp, error),
) func(context.Context, Req) (Resp, error) {
	return func(ctx context.Context, req Req) (resp Resp, err error) {
		c, err := call(req)
		if err != nil {
			return resp, err
		}
		var own Answer
		var unwritten, worked error
		out, err := o.Do(ctx, c, func(ctx context.Context) (Answer, error) {
			if resp, worked = fn(ctx, req); worked != nil {
				return Answer{}, worked
			}
			if !stillFinal(ctx) {
				return own, nil
			}
			if own.Value, unwritten = json.Marshal(resp); unwritten != nil {
				own.Unreplayable = true
			}
			return own, nil
		})
		switch {
		case err != nil:
		case unwritten != nil && out.Value == nil:
			err = fmt.Errorf("once: do %q: %w: %w", o.labelOf(&c), ErrUnreplayable, unwritten)
		case out.Replayed || worked != nil || !bytes.Equal(out.Value, own.Value):
			// The answer was replayed, or saved by Commit.
			var kept, none Resp
			if err := json.Unmarshal(out.Value, &kept); err != nil {
				return none, fmt.Errorf("once: do %q: stored answer: %w", o.labelOf(&c), err)
			}
			return kept, nil
		}
		return resp, err
	}
}
