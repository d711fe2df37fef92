package audit

// Assembler joins records that share a serial number. Those of one system call
// come in order, but calls on other processors come between them.
type Assembler struct {
	open  map[uint64]*Event
	order []uint64 // serials of open, oldest first
}

// Add takes one record and returns the events that are complete with it. A
// record that cannot be read is an error: something was lost.
func (a *Assembler) Add(kind uint16, text []byte) ([]Event, error) {
	switch kind {
	case TypeAccess, TypeDomain, TypeSyscall, TypeSeccomp, TypeEnd, TypeMark:
	default:
		return nil, nil // not about denials
	}
	r, err := parse(text)
	if err != nil {
		return nil, err
	}
	switch kind {
	case TypeAccess:
		return a.access(r)
	case TypeDomain:
		return a.domain(r)
	case TypeSyscall:
		return nil, a.syscall(r)
	case TypeSeccomp:
		p, err := r.fields.process()
		return alone(Event{Serial: r.serial, Time: r.time, Seccomp: true, Process: &p}, err)
	case TypeMark:
		n, err := r.fields.mark()
		return alone(Event{Serial: r.serial, Time: r.time, Mark: n}, err)
	}
	return a.end(r.serial), nil
}

func alone(e Event, err error) ([]Event, error) {
	if err != nil {
		return nil, err
	}
	return []Event{e}, nil
}

func (a *Assembler) access(r record) ([]Event, error) {
	access, err := r.fields.access()
	if err != nil {
		return nil, err
	}
	e, out := a.event(r)
	if len(e.Accesses) == maxAccesses {
		full := *e
		out = append(out, full)
		e.Accesses = nil
	}
	e.Accesses = append(e.Accesses, access)
	return out, nil
}

// domain hands out the end of a domain at once: no system call goes with it.
func (a *Assembler) domain(r record) ([]Event, error) {
	d, err := r.fields.domain()
	if err != nil {
		return nil, err
	}
	if d.Ended {
		return alone(Event{Serial: r.serial, Time: r.time, Domain: &d}, nil)
	}
	e, out := a.event(r)
	e.Domain = &d
	return out, nil
}

// syscall adds to an event who did it. A system call without one is not about
// a denial.
func (a *Assembler) syscall(r record) error {
	e := a.open[r.serial]
	if e == nil {
		return nil
	}
	p, err := r.fields.process()
	if err == nil {
		e.Process = &p
	}
	return err
}

func (a *Assembler) end(serial uint64) []Event {
	e := a.open[serial]
	if e == nil {
		return nil
	}
	a.forget(serial)
	return []Event{*e}
}

// event returns the open event of a serial, and the oldest one if there are too
// many whose last record does not come.
func (a *Assembler) event(r record) (*Event, []Event) {
	if e := a.open[r.serial]; e != nil {
		return e, nil
	}
	var out []Event
	if len(a.order) == maxUnfinished {
		out = a.end(a.order[0])
	}
	if a.open == nil {
		a.open = map[uint64]*Event{}
	}
	e := &Event{Serial: r.serial, Time: r.time}
	a.open[r.serial] = e
	a.order = append(a.order, r.serial)
	return e, out
}

func (a *Assembler) forget(serial uint64) {
	delete(a.open, serial)
	for i, s := range a.order {
		if s == serial {
			a.order = append(a.order[:i], a.order[i+1:]...)
			return
		}
	}
}
