package main

import (
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	berth "github.com/berthos/berth/sdk/go"
	"github.com/berthos/berth/sdk/protocol"
)

// writeOptions is what both ways of writing share.
type writeOptions struct {
	Append  bool   `json:"append,omitempty" jsonschema:"add to the end of the file"`
	NewOnly bool   `json:"new_only,omitempty" jsonschema:"fail if the file exists"`
	Parents bool   `json:"parents,omitempty" jsonschema:"create missing folders first"`
	Mode    string `json:"mode,omitempty" jsonschema:"permissions such as 0755; default: those the file has, or 0644"`
	Size    *int64 `json:"size,omitempty" jsonschema:"with a raw stream: how many bytes must come, else nothing is changed"`
}

type writeIn struct {
	Path    string  `json:"path" jsonschema:"the file; relative paths start at the workspace"`
	Content *string `json:"content,omitempty" jsonschema:"the text; left out with a raw stream"`
	writeOptions
}

type writeBinaryIn struct {
	Path          string  `json:"path" jsonschema:"the file; relative paths start at the workspace"`
	ContentBase64 *string `json:"content_base64,omitempty" jsonschema:"the bytes; left out with a raw stream"`
	writeOptions
}

type writeOut struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes" jsonschema:"how many were written"`
	Created bool   `json:"created" jsonschema:"the file did not exist before"`
}

func (f files) writeFile(ctx context.Context, in writeIn) (writeOut, error) {
	if in.Content == nil {
		return f.write(ctx, in.Path, in.writeOptions, "content", nil)
	}
	return f.write(ctx, in.Path, in.writeOptions, "content", strings.NewReader(*in.Content))
}

func (f files) writeBinaryFile(ctx context.Context, in writeBinaryIn) (writeOut, error) {
	if in.ContentBase64 == nil {
		return f.write(ctx, in.Path, in.writeOptions, "content_base64", nil)
	}
	raw, err := base64.StdEncoding.DecodeString(*in.ContentBase64)
	if err != nil {
		return writeOut{}, berth.Errorf(protocol.CodeInvalidInput, "input /content_base64: %w", err)
	}
	return f.write(ctx, in.Path, in.writeOptions, "content_base64", strings.NewReader(string(raw)))
}

// write takes the content from content or, if that is nil, from the raw stream.
func (f files) write(ctx context.Context, name string, in writeOptions, field string, content io.Reader) (writeOut, error) {
	path, err := f.asked(name)
	if err != nil {
		return writeOut{}, err
	}
	mode, err := in.mode()
	if err != nil {
		return writeOut{}, err
	}
	streamed := berth.HasStream(ctx)
	switch {
	case content == nil && !streamed:
		return writeOut{}, berth.Errorf(protocol.CodeInvalidInput, "input /%s: is missing, and the call has no raw stream", field)
	case content != nil && streamed:
		return writeOut{}, berth.Errorf(protocol.CodeInvalidInput, "input /%s: the call has a raw stream too; give one of them", field)
	case in.Append && in.NewOnly:
		return writeOut{}, berth.Errorf(protocol.CodeInvalidInput, "append and new_only exclude each other")
	}
	if in.Parents {
		if err := os.MkdirAll(parent(path), 0o755); err != nil {
			return writeOut{}, berth.Writing(err)
		}
	}
	w := writing{ctx: ctx, path: path, mode: mode, append: in.Append, newOnly: in.NewOnly, fill: func(dst io.Writer) (int64, error) {
		return fill(ctx, dst, content, in.Size)
	}}
	n, created, err := w.run()
	if err != nil {
		return writeOut{}, berth.Writing(err)
	}
	return writeOut{Path: shown(path), Bytes: n, Created: created}, nil
}

func (in writeOptions) mode() (*fs.FileMode, error) {
	if in.Mode == "" {
		return nil, nil
	}
	bits, err := strconv.ParseUint(in.Mode, 8, 32)
	if err != nil || bits > 0o777 {
		return nil, berth.Errorf(protocol.CodeInvalidInput, "input /mode: %.20q is not an octal number up to 0777", in.Mode)
	}
	mode := fs.FileMode(bits)
	return &mode, nil
}

// fill writes what the caller sent. A caller that went away half-way looks like
// the end of a stream, so the context and the announced size are asked as well.
func fill(ctx context.Context, dst io.Writer, content io.Reader, size *int64) (int64, error) {
	if content != nil {
		return io.Copy(dst, content)
	}
	stream, err := berth.Stream(ctx)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	if size != nil {
		total = *size
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{dst}, &reporter{ctx: ctx, r: stream, total: total}, make([]byte, 256<<10))
	switch {
	case err != nil:
		return n, err
	case ctx.Err() != nil:
		return n, ctx.Err()
	case size != nil && n != *size:
		return n, berth.Errorf(protocol.CodeInvalidInput, "%d bytes came on the raw stream, %d were announced; nothing was changed", n, *size)
	}
	return n, nil
}
