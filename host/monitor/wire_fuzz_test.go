package monitor

import (
	"bytes"
	"testing"
)

// FuzzReceive: whatever a monitor that was taken over sends its parent, reading it
// ends, and what is accepted is one report.
func FuzzReceive(f *testing.F) {
	for _, v := range []report{{Failed: &Failure{Reason: "x"}}, {Started: &Started{ID: "a-1"}}, {Ended: &Ended{}}} {
		var b buffer
		if err := (&channel{conn: &b}).send(v, nil); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x02\x00\x00\x00\x09{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bytes.NewReader(raw)
		for {
			var got report
			blob, err := receive(r, &got, maxReport, 0)
			if err != nil {
				return
			}
			if len(blob) > 0 {
				t.Fatalf("%d bytes behind a report", len(blob))
			}
			if got.check() == nil && got == (report{}) {
				t.Fatal("nothing is a report")
			}
		}
	})
}

type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }
