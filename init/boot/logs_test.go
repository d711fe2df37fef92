package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berthos/berth/init/link"
)

// written returns the lines that come of what is written in pieces.
func written(pieces ...string) []string {
	var lines []string
	w := &lineWriter{emit: func(l string) { lines = append(lines, l) }, closed: func() {}}
	for _, p := range pieces {
		_, _ = w.Write([]byte(p))
	}
	_ = w.Close()
	return lines
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ pieces, want []string }{
		{[]string{"a\nb\n"}, []string{"a", "b"}},
		{[]string{"a", "b\nc"}, []string{"ab", "c"}},
		{[]string{"\n\n"}, []string{"", ""}},
		{[]string{"dos\r\n"}, []string{"dos"}},
		{[]string{"caf\xc3", "\xa9\n"}, []string{"café"}},
		{[]string{"bad \xff\xfe byte\n"}, []string{"bad \uFFFD byte"}},
		{[]string{"\x1b[31mred\x1b[0m\x00\n"}, []string{"\x1b[31mred\x1b[0m\x00"}},
		{nil, nil},
	} {
		if got := written(c.pieces...); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q", c.pieces, got)
		}
	}
}

func TestLongLinesAreCut(t *testing.T) {
	for _, long := range []string{
		strings.Repeat("x", link.MaxLogLine),
		strings.Repeat("x", 3<<20),
		strings.Repeat("\xff", link.MaxLogLine), // becomes longer
		strings.Repeat("€", link.MaxLogLine),    // is cut within a character
	} {
		got := written(long[:10], long[10:], "\nnext\n")
		if len(got) != 2 || got[1] != "next" {
			t.Fatalf("%d lines", len(got))
		}
		if len(got[0]) > link.MaxLogLine || !strings.HasSuffix(got[0], cutMarker) && len(long) > link.MaxLogLine {
			t.Errorf("%d bytes, ends in %q", len(got[0]), got[0][len(got[0])-10:])
		}
		if !utf8.ValidString(got[0]) {
			t.Error("cut within a character")
		}
	}
}

// collector is a host that reads the log.
type collector struct {
	got  []link.LogRecord
	more chan struct{} // one read for each
}

func (c *collector) SendLog(r link.LogRecord) error {
	if _, ok := <-c.more; !ok {
		return errors.New("gone")
	}
	c.got = append(c.got, r)
	return nil
}

func TestFloodIsCountedAndOthersAreServed(t *testing.T) {
	l := newLogs()
	flood, other := l.writer("flood", "stdout"), l.writer("other", "stderr")
	for i := range 3 * ringLines {
		fmt.Fprintf(flood, "line %d\n", i)
	}
	fmt.Fprintln(other, "still here")
	_ = flood.Close()
	_ = other.Close()
	host := &collector{more: make(chan struct{})}
	close2 := make(chan struct{})
	go func() { l.send(host.SendLog); close(close2) }()
	for range ringLines + 1 {
		host.more <- struct{}{}
	}
	within, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	l.flush(within)
	close(host.more)
	l.add("x", "stdout", "wakes the writer, which finds that the host is gone")
	<-close2
	l.flush(within) // must not wait for a host that is gone

	var dropped int64
	place := -1
	for i, r := range host.got {
		dropped += r.Dropped
		if r.App == "other" {
			place = i
		}
	}
	if dropped != 2*ringLines || len(host.got) != ringLines+1 {
		t.Errorf("%d lines, %d dropped", len(host.got), dropped)
	}
	if place < 0 || place > 1 {
		t.Errorf("the other app's line came as number %d", place)
	}
	if last := host.got[len(host.got)-1]; last.Line != fmt.Sprintf("line %d", 3*ringLines-1) {
		t.Errorf("the last line is %q", last.Line)
	}
}

func TestRingIsBoundedInBytes(t *testing.T) {
	l := newLogs()
	for range 1000 {
		l.add("a", "stdout", strings.Repeat("x", link.MaxLogLine))
	}
	if r := l.rings[0]; r.bytes > ringBytes || len(r.lines) > ringBytes/link.MaxLogLine {
		t.Errorf("%d lines, %d bytes", len(r.lines), r.bytes)
	}
}

func TestFlushIsBounded(t *testing.T) {
	l := newLogs()
	l.add("a", "stdout", "nobody reads this")
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	l.flush(short)
}

func TestTailKeepsTheLastLines(t *testing.T) {
	l := newLogs()
	w := l.writer("a", "stderr")
	for i := range 3 * tailLines {
		fmt.Fprintln(w, i)
	}
	if got := w.last(); len(got) != tailLines || got[tailLines-1] != fmt.Sprint(3*tailLines-1) {
		t.Error(got)
	}
}

func TestKernelRecords(t *testing.T) {
	for record, want := range map[string]string{
		"3,1,2,-;device-mapper: verity: block is corrupted\n SUBSYSTEM=x\n": "device-mapper: verity: block is corrupted",
		"12,1,2,-;from user space\n":                                        "from user space",
		"6,1,2,-;of no interest\n":                                          "",
		"nonsense":                                                          "",
	} {
		got, ok := kernelRecord([]byte(record))
		if ok != (want != "") || ok && string(got) != want {
			t.Errorf("%q: %q, %v", record, got, ok)
		}
	}
}
