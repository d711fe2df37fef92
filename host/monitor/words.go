package monitor

import (
	"fmt"
	"strings"

	"github.com/berthos/berth/host/term"
	"github.com/berthos/berth/init/link"
	"github.com/berthos/berth/init/policy"
)

// Lines are an event for people. Text from the sandbox is made visible.
func (e Event) Lines() (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, term.Visible(fmt.Sprintf(format, args...))) }
	switch {
	case e.Exited != nil && e.Exited.RestartMillis > 0:
		say("app %s ended (%s); starting it again in %d ms", e.App, e.Exited.Status, e.Exited.RestartMillis)
	case e.Exited != nil:
		say("app %s ended (%s)", e.App, e.Exited.Status)
	case e.Failed != nil:
		say("app %s does not run: %s: %s", e.App, e.Failed.Step, e.Failed.Reason)
	case e.Name != nil:
		say("%s", e.Name)
	case e.Ended != nil && e.Ended.Console != "":
		say("the guest's last lines:")
		for line := range strings.Lines(e.Ended.Console) {
			say("  %s", strings.TrimRight(line, "\r\n"))
		}
	}
	return lines
}

// LogLine is a record for people.
func LogLine(r link.LogRecord) string {
	source := r.App
	if source == "" {
		source = "guest"
	}
	line := fmt.Sprintf("%s %s: %s", source, r.Stream, r.Line)
	if r.Dropped > 0 {
		line = fmt.Sprintf("[%d lines lost] ", r.Dropped) + line
	}
	return term.Visible(line)
}

// appName is the name in a policy that was encoded by this program.
func appName(encoded []byte) string {
	p, err := policy.Parse(encoded)
	if err != nil {
		return ""
	}
	return p.App
}
