package protocol

import (
	"fmt"
	"math"
)

// check says whether q is a line that this protocol knows.
func (q Request) check() error {
	switch q.Type {
	case TypeHello:
		if q.Protocol < 1 {
			return fmt.Errorf("%w: hello without a protocol version", ErrNotMessage)
		}
	case TypeCall:
		if err := CheckName(q.Export); err != nil {
			return fmt.Errorf("%w: call of an export: %w", ErrNotMessage, err)
		}
		if len(q.Caller) > MaxID {
			return fmt.Errorf("%w: a caller has at most %d bytes", ErrNotMessage, MaxID)
		}
		return checkID(q.ID)
	case TypeStream:
		if q.Export != "" {
			if err := CheckName(q.Export); err != nil {
				return fmt.Errorf("%w: stream of an export: %w", ErrNotMessage, err)
			}
		}
		return checkID(q.ID)
	case TypeCancel, TypeShutdown:
	default:
		return fmt.Errorf("%w: unknown type %.40q", ErrNotMessage, q.Type)
	}
	return nil
}

func (m Message) check() error {
	switch m.Type {
	case TypeAnnounce:
		return m.checkAnnounce()
	case TypeResult:
		if len(m.Output) == 0 {
			return fmt.Errorf("%w: result without output", ErrNotMessage)
		}
	case TypeError:
		if m.Error == nil || m.Error.Code == "" {
			return fmt.Errorf("%w: error without a code", ErrNotMessage)
		}
	case TypeProgress:
		for _, v := range [...]float64{m.Value, m.Total} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return fmt.Errorf("%w: progress of %v", ErrNotMessage, v)
			}
		}
	case TypeLog:
	default:
		return fmt.Errorf("%w: unknown type %.40q", ErrNotMessage, m.Type)
	}
	return nil
}

func (m Message) checkAnnounce() error {
	if m.Protocol < 1 {
		return fmt.Errorf("%w: announcement without a protocol version", ErrNotMessage)
	}
	seen := make(map[string]bool, len(m.Exports))
	for _, e := range m.Exports {
		if err := CheckName(e.Name); err != nil {
			return fmt.Errorf("%w: announced export: %w", ErrNotMessage, err)
		}
		if seen[e.Name] {
			return fmt.Errorf("%w: export %q is announced twice", ErrNotMessage, e.Name)
		}
		seen[e.Name] = true
	}
	return nil
}

func checkID(id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("%w: an ID has 1 to %d bytes, got %d", ErrNotMessage, MaxID, len(id))
	}
	return nil
}

// CheckName says whether an export may have this name: a letter, then letters,
// digits, '_' and '-', at most MaxName.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("a name has 1 to %d bytes, got %d", MaxName, len(name))
	}
	for i, c := range []byte(name) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9') && c != '_' && c != '-') {
			return fmt.Errorf("name %q is not a letter followed by letters, digits, '_' and '-'", name)
		}
	}
	return nil
}
