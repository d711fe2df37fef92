package boot

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"syscall"
)

// worstLevel is the least important level of the kernel's log that the host
// gets: warnings, such as a process killed for memory or a corrupted block.
const worstLevel = 4

// kernelLog copies the kernel's log of a VM to the host, one record a read.
func (p *pid1) kernelLog(ctx context.Context) {
	f, err := p.sys.KernelLog()
	if err != nil {
		p.log.Warn("cannot read the kernel's log", "error", err)
		return
	}
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	w := p.logs.writer("", "kernel")
	defer w.Close()
	record := make([]byte, 8<<10)
	for {
		n, err := f.Read(record)
		if errors.Is(err, syscall.EPIPE) {
			continue // records were overwritten before they were read
		}
		if err != nil {
			return
		}
		if text, ok := kernelRecord(record[:n]); ok {
			_, _ = w.Write(append(text, '\n'))
		}
	}
}

// kernelRecord takes the text out of "level,number,time,flags;text", followed
// by lines that begin with a blank, if the record matters.
func kernelRecord(record []byte) (text []byte, matters bool) {
	head, text, ok := bytes.Cut(record, []byte(";"))
	priority, _, _ := bytes.Cut(head, []byte(","))
	level, err := strconv.Atoi(string(priority))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	return text, ok && err == nil && level&7 <= worstLevel
}
