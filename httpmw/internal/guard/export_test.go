package guard

// RewriteAnswer decodes a stored answer and encodes it again.
func RewriteAnswer(data []byte) ([]byte, error) {
	a, err := decodeAnswer(data)
	if err != nil {
		return nil, err
	}
	return a.encode(), nil
}

// NotedAnswer returns the encoding of an answer of this body, with this note of how it
// was written.
func NotedAnswer(status int, body, note string) []byte {
	a := answer{status: status, written: body != "", body: []byte(body), header: []field{
		{"Content-Type", []string{"text/plain"}}, {callsField, []string{note}}, {"Location", nil},
	}}
	return a.encode()
}

// ReplayAnswer replays a stored response by w, and returns it.
func ReplayAnswer(w Writer, data []byte) (status int, body []byte, err error) {
	a, err := decodeAnswer(data)
	if err == nil {
		a.replay(w)
	}
	return a.status, a.body, err
}
