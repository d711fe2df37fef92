package control

import (
	"bytes"
	"testing"
)

// FuzzReply: whatever serves control.sock, reading a reply takes no more than its
// line and ends.
func FuzzReply(f *testing.F) {
	f.Add([]byte("{\"error\":\"x\"}\nrest"))
	f.Add([]byte("{\"description\":{\"id\":\"a-1\"}}\n"))
	f.Add([]byte("{\"names\":{\"list\":[{}]}}\n\n"))
	f.Add([]byte("{\"unknown\":1}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bytes.NewReader(raw)
		var got reply
		_ = readLine(r, &got)
		end := bytes.IndexByte(raw, '\n') + 1
		if end == 0 {
			end = len(raw)
		}
		if taken := len(raw) - r.Len(); taken != end {
			t.Errorf("%d bytes were taken, the line has %d", taken, end)
		}
	})
}
