package once

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// Guard decorates fn: requests for which call gives the same Call have one
// answer, kept as JSON. The decorated function fails with call's error, or with
// those of Do.
//
// The caller whose call runs fn gets what fn returned, as it is, together with an error
// if that could not be saved. If fn has saved another answer by Commit, the caller gets that one,
// read as JSON, as later callers do. If what fn returned cannot be written as JSON, the run is
// kept as unreplayable. After NotFinal it is neither written nor kept. If what is kept cannot be
// read as a Resp, since that type has changed, the answer is an error, and fn is not run
// again.
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
			err = fmt.Errorf("once %s: %w: %w", o.labelOf(&c), ErrUnreplayable, unwritten)
		case out.Replayed || worked != nil || !bytes.Equal(out.Value, own.Value): // what Commit has saved
			var kept, none Resp
			if err := json.Unmarshal(out.Value, &kept); err != nil {
				return none, fmt.Errorf("once %s: kept answer: %w", o.labelOf(&c), err)
			}
			return kept, nil
		}
		return resp, err
	}
}
