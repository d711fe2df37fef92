package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode/utf8"
)

// piece is some lines of a file.
type piece struct {
	content []byte
	lines   int64 // in content; one that is cut or has no newline counts too
	more    bool  // the file has lines before (lastLines) or after (firstLines)
	midLine bool  // cut in the middle of a line
}

// firstLines skips some lines and reads at most limit further ones (0: all), and
// at most budget bytes: whole lines, unless not even one fits.
func firstLines(r io.Reader, skip, limit, budget int64) (piece, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for ; skip > 0; skip-- {
		if err := skipLine(in); err != nil {
			return piece{}, endIsFine(err)
		}
	}
	var p piece
	for limit == 0 || p.lines < limit {
		line, whole, err := readLine(in, budget-int64(len(p.content)))
		if err != nil {
			return p, endIsFine(err)
		}
		if !whole && p.lines > 0 {
			p.more = true
			return p, nil
		}
		p.content = append(p.content, line...)
		p.lines++
		if !whole {
			p.content = wholeRunes(p.content)
			p.more, p.midLine = true, true
			return p, nil
		}
	}
	_, err := in.Peek(1)
	p.more = err == nil
	return p, endIsFine(err)
}

// readLine reads a line of at most budget bytes; whole is false if it is longer.
// io.EOF means that there is no line at all.
func readLine(in *bufio.Reader, budget int64) (line []byte, whole bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if room := budget - int64(len(line)); int64(len(part)) > room {
			return append(line, part[:max(room, 0)]...), false, nil
		}
		line = append(line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}

func skipLine(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func endIsFine(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// lastLines reads the last n lines of a file of a known size backwards, at most
// budget bytes of them.
func lastLines(r io.ReaderAt, size, n, budget int64) (piece, error) {
	const step = 64 << 10
	start := size
	var tail []byte
	for start > 0 && size-start < budget {
		from := max(start-step, size-budget, 0)
		part := make([]byte, start-from)
		if _, err := r.ReadAt(part, from); err != nil && !errors.Is(err, io.EOF) {
			return piece{}, err
		}
		tail, start = append(part, tail...), from
		if cut := lineStart(tail, n); cut > 0 {
			return piece{content: tail[cut:], lines: n, more: true}, nil
		}
	}
	p := piece{content: tail, lines: countLines(tail), more: start > 0}
	if p.more { // the budget is used up: begin with a whole line, or at least a whole character
		if i := bytes.IndexByte(tail, '\n'); i >= 0 && i+1 < len(tail) {
			p.content = tail[i+1:]
		} else {
			for len(p.content) > 0 && !utf8.RuneStart(p.content[0]) {
				p.content = p.content[1:]
			}
		}
		p.lines = countLines(p.content)
	}
	return p, nil
}

// lineStart is where the last n lines of b begin, or 0 if b has not more.
func lineStart(b []byte, n int64) int {
	end := len(b)
	if end > 0 && b[end-1] == '\n' {
		end--
	}
	for ; n > 0; n-- {
		end = bytes.LastIndexByte(b[:end], '\n')
		if end < 0 {
			return 0
		}
	}
	return end + 1
}

func countLines(b []byte) int64 {
	n := int64(bytes.Count(b, []byte("\n")))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		n++
	}
	return n
}

// wholeRunes drops the beginning of a character at the end.
func wholeRunes(b []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			return b
		}
	}
	return b
}

// invalidAt is the place of the first byte that is not UTF-8, or -1.
func invalidAt(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return -1
}
