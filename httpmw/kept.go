package httpmw

import "net/http"

// Kept is a response as KeepIf sees it. Body must not be changed.
type Kept struct {
	Status int
	Header http.Header // a copy, with what middlewares outside have set
	// Body is what the handler wrote, at most the first AnswerLimit bytes.
	Body []byte
	// Unreplayable reports that the response is longer than AnswerLimit, or was sent as
	// a stream. It is not kept, and Body may be its beginning only. If KeepIf returns
	// true, the same request is refused with 410; otherwise it can be made again.
	Unreplayable bool
	// ByDefault reports whether the response is one that is kept without KeepIf, by its
	// status.
	ByDefault bool
}
