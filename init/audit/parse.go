package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is one parsed line.
type record struct {
	serial uint64
	time   time.Time
	fields fields
}

// field is one key and its value as the kernel wrote it.
type field struct{ key, raw string }

type fields []field

// parse splits "audit(<seconds>.<ms>:<serial>): key=value …". Values that a
// process chose are quoted, or in hex digits if they hold a blank, a quote or a
// control character: so a blank ends every value.
func parse(text []byte) (record, error) {
	text = bytes.TrimRight(text, "\x00\n")
	if len(text) > maxText {
		return record{}, fmt.Errorf("cannot parse audit record: %d bytes, at most %d are accepted", len(text), maxText)
	}
	head, rest, ok := strings.Cut(string(text), "): ")
	stamp, begins := strings.CutPrefix(head, "audit(")
	seconds, serial, split := strings.Cut(stamp, ":")
	if !ok || !begins || !split {
		return record{}, errors.New("cannot parse audit record: it does not begin with audit(TIME:SERIAL)")
	}
	var r record
	var err error
	if r.serial, err = strconv.ParseUint(serial, 10, 64); err != nil {
		return record{}, fmt.Errorf("cannot parse audit record: serial: %w", err)
	}
	if r.time, err = parseTime(seconds); err != nil {
		return record{}, fmt.Errorf("cannot parse audit record: %w", err)
	}
	r.fields, err = parseFields(rest)
	return r, err
}

func parseTime(s string) (time.Time, error) {
	whole, ms, ok := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 62)
	if err != nil || !ok || len(ms) != 3 {
		return time.Time{}, fmt.Errorf("no time: %q", s)
	}
	milli, err := strconv.ParseUint(ms, 10, 16)
	if err != nil {
		return time.Time{}, fmt.Errorf("no time: %q", s)
	}
	return time.Unix(sec, int64(milli)*int64(time.Millisecond)), nil
}

func parseFields(s string) (fields, error) {
	var fs fields
	for _, word := range strings.Split(s, " ") {
		if word == "" {
			continue
		}
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("cannot parse audit record: %q is no field", word)
		}
		if len(fs) == maxFields {
			return nil, fmt.Errorf("cannot parse audit record: more than %d fields", maxFields)
		}
		fs = append(fs, field{key, value})
	}
	return fs, nil
}

// get returns a field that occurs once.
func (fs fields) get(key string) (string, error) {
	found := -1
	for i, f := range fs {
		if f.key == key && found >= 0 {
			return "", fmt.Errorf("cannot parse audit record: %s twice", key)
		} else if f.key == key {
			found = i
		}
	}
	if found < 0 {
		return "", fmt.Errorf("cannot parse audit record: no %s", key)
	}
	return fs[found].raw, nil
}

func (fs fields) has(key string) bool {
	return slices.ContainsFunc(fs, func(f field) bool { return f.key == key })
}

func (fs fields) uint(key string, base, bits int) (uint64, error) {
	raw, err := fs.get(key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(raw, base, bits)
	if err != nil {
		return 0, fmt.Errorf("cannot parse audit record: %s: %w", key, err)
	}
	return n, nil
}

func (fs fields) int(key string) (int64, error) {
	raw, err := fs.get(key)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(raw, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot parse audit record: %s: %w", key, err)
	}
	return n, nil
}

// text returns what a process could choose. Bytes that are no UTF-8 are replaced.
func (fs fields) text(key string) (string, error) {
	raw, err := fs.get(key)
	if err != nil {
		return "", err
	}
	if raw == "(null)" || raw == "(none)" {
		return "", nil
	}
	if inner, ok := strings.CutPrefix(raw, `"`); ok {
		inner, ok = strings.CutSuffix(inner, `"`)
		if !ok || strings.Contains(inner, `"`) {
			return "", fmt.Errorf("cannot parse audit record: %s: quotes do not match", key)
		}
		return strings.ToValidUTF8(inner, "\uFFFD"), nil
	}
	b, err := hex.DecodeString(raw)
	if err != nil || raw == "" {
		return "", fmt.Errorf("cannot parse audit record: %s: neither quoted nor hexadecimal", key)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), nil
}
