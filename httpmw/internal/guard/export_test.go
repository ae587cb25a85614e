package guard

// RewriteAnswer decodes a stored response and encodes it again.
func RewriteAnswer(data []byte) ([]byte, error) {
	a, err := decodeAnswer(data)
	if err != nil {
		return nil, err
	}
	return a.encode(), nil
}

// NotedAnswer returns the encoding of a response with this body, and with this note of
// the calls that wrote it.
func NotedAnswer(status int, body, note string) []byte {
	a := answer{status: status, written: body != "", body: []byte(body), header: []field{
		{"Content-Type", []string{"text/plain"}}, {callsField, []string{note}}, {"Location", nil},
	}}
	return a.encode()
}

// ReplayAnswer replays a stored response to w, and returns its status and body.
func ReplayAnswer(w Writer, data []byte) (status int, body []byte, err error) {
	a, err := decodeAnswer(data)
	if err == nil {
		a.replay(w)
	}
	return a.status, a.body, err
}
