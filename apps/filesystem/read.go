package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
)

type readIn struct {
	Path   string `json:"path" jsonschema:"the file; relative paths start at the workspace"`
	Head   int64  `json:"head,omitempty" jsonschema:"only the first so many lines"`
	Tail   int64  `json:"tail,omitempty" jsonschema:"only the last so many lines"`
	Offset int64  `json:"offset,omitempty" jsonschema:"skip so many lines first"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"at most so many lines"`
}

type readOut struct {
	Path       string `json:"path"`
	Content    string `json:"content"`
	Size       int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	Bytes      int64  `json:"bytes" jsonschema:"how many bytes of it were read"`
	Lines      int64  `json:"lines" jsonschema:"how many lines the content has"`
	Truncated  bool   `json:"truncated" jsonschema:"the file has more than the content"`
	NextOffset int64  `json:"next_offset,omitempty" jsonschema:"the offset, in lines, of what follows"`
	Notice     string `json:"notice,omitempty" jsonschema:"what was left out, in words"`
}

func (f files) readFile(ctx context.Context, in readIn) (readOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return readOut{}, err
	}
	if err := in.check(); err != nil {
		return readOut{}, err
	}
	if berth.HasStream(ctx) {
		if in.Head+in.Tail+in.Offset+in.Limit > 0 {
			return readOut{}, berth.Errorf(protocol.CodeInvalidInput, "a raw stream carries the whole file; head, tail, offset and limit do not go with it")
		}
		n, size, err := sendFile(ctx, path, 0, -1)
		return readOut{Path: shown(path), Size: size, Bytes: n}, berth.Reading(err)
	}
	out, err := readText(path, in, maxText)
	return out, berth.Reading(err)
}

func (in readIn) check() error {
	switch {
	case in.Head < 0 || in.Tail < 0 || in.Offset < 0 || in.Limit < 0:
		return berth.Errorf(protocol.CodeInvalidInput, "head, tail, offset and limit cannot be negative")
	case in.Head > 0 && in.Tail+in.Offset+in.Limit > 0, in.Tail > 0 && in.Offset+in.Limit > 0:
		return berth.Errorf(protocol.CodeInvalidInput, "give head, or tail, or offset and limit, not several of them")
	}
	return nil
}

// openFile opens a regular file for reading. It never waits, as opening a pipe
// otherwise does.
func openFile(path string) (*os.File, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular() && !info.IsDir(): // reading a folder fails by itself
		err = fmt.Errorf("%q is not a regular file (%s)", path, info.Mode().Type())
	default:
		return file, info, nil
	}
	file.Close()
	return nil, nil, err
}

// readText reads at most budget bytes of the lines that were asked for.
func readText(path string, in readIn, budget int64) (readOut, error) {
	file, info, err := openFile(path)
	if err != nil {
		return readOut{}, err
	}
	defer file.Close()
	lines := in.Limit
	if in.Head > 0 {
		lines = in.Head
	}
	var part piece
	switch {
	case in.Tail > 0 && info.Size() == 0: // as files of /proc, which have content all the same
		var all []byte
		all, err = io.ReadAll(io.LimitReader(file, budget))
		part = piece{content: all[lineStart(all, in.Tail):]}
		part.lines, part.more = countLines(part.content), len(part.content) < len(all)
	case in.Tail > 0:
		part, err = lastLines(file, info.Size(), in.Tail, budget)
	default:
		part, err = firstLines(file, in.Offset, lines, budget)
	}
	if err != nil {
		return readOut{}, err
	}
	if err := isText(path, part.content); err != nil {
		return readOut{}, err
	}
	return part.answer(path, in, info.Size()), nil
}

// isText refuses what JSON cannot carry unchanged.
func isText(path string, content []byte) error {
	at := invalidAt(content)
	if at < 0 {
		return nil
	}
	return berth.Errorf(protocol.CodeFailed, "cannot read %q as text: it is not UTF-8 (byte %d of what was read); use read_binary_file", path, at)
}

func (p piece) answer(path string, in readIn, size int64) readOut {
	out := readOut{Path: shown(path), Content: string(p.content), Bytes: int64(len(p.content)), Lines: p.lines, Truncated: p.more, Size: size}
	// Files of /proc say 0.
	out.Size = max(out.Size, out.Bytes)
	switch {
	case !p.more:
	case in.Tail > 0:
		out.Notice = fmt.Sprintf("these are the last %d bytes of %d", out.Bytes, out.Size)
	case p.midLine:
		out.Notice = fmt.Sprintf("cut after %d of %d bytes in the middle of a line; read_binary_file or a raw stream has the rest", out.Bytes, out.Size)
	default:
		out.NextOffset = in.Offset + p.lines
		out.Notice = fmt.Sprintf("%d of %d bytes; go on with offset %d", out.Bytes, out.Size, out.NextOffset)
	}
	return out
}

type readBinaryIn struct {
	Path   string `json:"path" jsonschema:"the file; relative paths start at the workspace"`
	Offset int64  `json:"offset,omitempty" jsonschema:"skip so many bytes first"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"at most so many bytes; an answer has at most 4194304, a raw stream any number"`
}

type readBinaryOut struct {
	Path          string `json:"path"`
	ContentBase64 string `json:"content_base64" jsonschema:"empty if the bytes went over the raw stream"`
	MediaType     string `json:"media_type" jsonschema:"by the file's name"`
	Size          int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	Bytes         int64  `json:"bytes" jsonschema:"how many bytes were read"`
	Truncated     bool   `json:"truncated" jsonschema:"the file goes on after them"`
	NextOffset    int64  `json:"next_offset,omitempty" jsonschema:"the offset of what follows"`
}

func (f files) readBinaryFile(ctx context.Context, in readBinaryIn) (readBinaryOut, error) {
	path, err := f.asked(in.Path)
	if err != nil {
		return readBinaryOut{}, err
	}
	if in.Offset < 0 || in.Limit < 0 {
		return readBinaryOut{}, berth.Errorf(protocol.CodeInvalidInput, "offset and limit cannot be negative")
	}
	out := readBinaryOut{Path: shown(path), MediaType: mediaType(path)}
	if berth.HasStream(ctx) {
		limit := in.Limit
		if limit == 0 {
			limit = -1
		}
		out.Bytes, out.Size, err = sendFile(ctx, path, in.Offset, limit)
	} else {
		var content []byte
		content, out.Size, err = readBytes(path, in)
		out.Bytes, out.ContentBase64 = int64(len(content)), base64.StdEncoding.EncodeToString(content)
	}
	if err != nil {
		return readBinaryOut{}, berth.Reading(err)
	}
	if end := in.Offset + out.Bytes; end < out.Size {
		out.Truncated, out.NextOffset = true, end
	}
	return out, nil
}

func readBytes(path string, in readBinaryIn) ([]byte, int64, error) {
	limit := int64(maxBinary)
	if in.Limit > 0 && in.Limit < limit {
		limit = in.Limit
	}
	file, info, err := openFile(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	var content bytes.Buffer
	n, err := io.Copy(&content, io.NewSectionReader(file, in.Offset, limit))
	return content.Bytes(), max(info.Size(), in.Offset+n), err
}

// sendFile copies a file, or limit bytes of it if that is not negative, to the
// call's raw stream.
func sendFile(ctx context.Context, path string, offset, limit int64) (sent, size int64, err error) {
	file, info, err := openFile(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	stream, err := berth.Stream(ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return 0, 0, err
	}
	var src io.Reader = file
	total := max(info.Size()-offset, 0)
	if limit >= 0 {
		src, total = io.LimitReader(file, limit), min(total, limit)
	}
	sent, err = io.Copy(stream, &reporter{ctx: ctx, r: src, total: total})
	if err != nil {
		return sent, 0, err
	}
	return sent, max(info.Size(), offset+sent), stream.CloseWrite()
}

// reporter tells the caller about a copy's progress now and then.
type reporter struct {
	ctx              context.Context
	r                io.Reader
	done, total, due int64
}

const reportEvery = 16 << 20

func (p *reporter) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.done += int64(n); p.done >= p.due+reportEvery {
		p.due = p.done
		berth.Progress(p.ctx, float64(p.done), float64(p.total), "bytes copied")
	}
	return n, err
}

// mediaType knows what agents show to people or models; all else is bytes.
func mediaType(path string) string {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".png":
		return "image/png"
	case ".jpg", ".jpeg":
		return "image/jpeg"
	case ".gif":
		return "image/gif"
	case ".webp":
		return "image/webp"
	case ".svg":
		return "image/svg+xml"
	case ".pdf":
		return "application/pdf"
	case ".mp3":
		return "audio/mpeg"
	case ".wav":
		return "audio/wav"
	case ".ogg":
		return "audio/ogg"
	case ".mp4":
		return "video/mp4"
	}
	return "application/octet-stream"
}

type readManyIn struct {
	Paths []string `json:"paths" jsonschema:"1 to 100 files"`
}

type readManyOut struct {
	Files []readOne `json:"files"`
}

type readOne struct {
	Path  string          `json:"path"`
	File  *readOut        `json:"file,omitempty"`
	Error *protocol.Error `json:"error,omitempty" jsonschema:"why this one could not be read"`
}

// readMultipleFiles shares one budget among all files, in their order.
func (f files) readMultipleFiles(ctx context.Context, in readManyIn) (readManyOut, error) {
	if len(in.Paths) == 0 || len(in.Paths) > maxFiles {
		return readManyOut{}, berth.Errorf(protocol.CodeInvalidInput, "paths: 1 to %d files, got %d", maxFiles, len(in.Paths))
	}
	var out readManyOut
	budget := int64(maxText)
	for i, name := range in.Paths {
		if ctx.Err() != nil {
			return readManyOut{}, ctx.Err()
		}
		path, err := f.asked(name)
		one := readOne{Path: shown(path)}
		var file readOut
		if err == nil {
			file, err = readText(path, readIn{}, budget)
			err = berth.Reading(err)
		}
		if err != nil {
			one.Error = berth.ToError(err)
		} else {
			one.File = &file
			budget -= file.Bytes
		}
		out.Files = append(out.Files, one)
		berth.Progress(ctx, float64(i+1), float64(len(in.Paths)), "files read")
	}
	return out, nil
}
