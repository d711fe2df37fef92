// Command stub stands in for the enforcer and the app in tests of PID 1: it
// speaks both protocols and enforces nothing. The policy's argv says how it
// behaves: see app.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/berthos/berth/init/policy"
	"github.com/berthos/berth/init/sandbox"
	"github.com/berthos/berth/sdk/protocol"
)

var cgroups int // descriptors of them

func main() {
	if os.Getpid() != 1 {
		fmt.Println("not the first process of a pid namespace")
		os.Exit(3)
	}
	raw, err := io.ReadAll(os.NewFile(sandbox.FDSpec, "spec"))
	check(err)
	var spec sandbox.Spec
	check(json.Unmarshal(raw, &spec))
	pol, err := policy.Parse(spec.Policy)
	check(err)
	args := pol.Argv[1:]
	reports := os.NewFile(sandbox.FDReport, "report")
	cgroups = spec.Cgroups
	for i := range spec.Cgroups {
		_, err := os.NewFile(uintptr(sandbox.FDCgroup+i), "cgroup.procs").WriteString("0")
		check(err)
	}
	report := json.NewEncoder(reports)
	if has(args, "refuse") {
		check(report.Encode(sandbox.Report{Failed: &sandbox.StepFailed{Step: "landlock", Reason: "no Landlock here"}}))
		os.Exit(1)
	}
	check(report.Encode(sandbox.Report{Step: &sandbox.StepDone{Name: "nothing"}}))
	done := sandbox.EnforcedDone{PolicySHA256: policy.Digest(spec.Policy), ABI: spec.ABI, Steps: []string{"nothing"}}
	check(report.Encode(sandbox.Report{Enforced: &done}))
	var g [1]byte
	n, _ := os.NewFile(sandbox.FDGo, "go").Read(g[:])
	if n != 1 || g[0] != 'g' {
		os.Exit(4)
	}
	check(reports.Close())
	app(args, spec)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func has(args []string, want string) bool {
	for _, a := range args {
		if a == want {
			return true
		}
	}
	return false
}

// app behaves as its arguments say: "exit" ends before it is ready, "mute"
// never announces, "stubborn" ignores SIGTERM and shutdown, "flood" prints
// without end, "orphans" leaves processes to PID 1.
func app(args []string, spec sandbox.Spec) {
	fmt.Println("app of", spec.Hostname)
	if has(args, "exit") {
		fmt.Fprintln(os.Stderr, "cannot find my configuration")
		os.Exit(7)
	}
	if has(args, "stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	l, err := net.FileListener(os.NewFile(sandbox.FDApp, "listen"))
	check(err)
	if has(args, "flood") {
		go func() {
			for {
				fmt.Println(strings.Repeat("flood ", 20))
			}
		}()
	}
	for {
		c, err := l.Accept()
		check(err)
		go serve(args, c.(*net.UnixConn))
	}
}

func serve(args []string, c *net.UnixConn) {
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return
	}
	var req protocol.Request
	check(json.Unmarshal(line, &req))
	out := json.NewEncoder(c)
	switch req.Type {
	case protocol.TypeHello:
		if has(args, "mute") {
			time.Sleep(time.Hour)
		}
		check(out.Encode(protocol.Message{Type: protocol.TypeAnnounce, Protocol: 1, Exports: []protocol.Export{{Name: "echo"}}}))
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			if strings.Contains(string(line), protocol.TypeShutdown) && !has(args, "stubborn") {
				fmt.Println("bye")
				os.Exit(0)
			}
		}
	case protocol.TypeStream:
		_, _ = io.Copy(c, r)
	case protocol.TypeCall:
		if req.Export == "hand" {
			var in hand
			check(json.Unmarshal(req.Input, &in))
			req.Input, err = json.Marshal(in.over(sandbox.FDCgroup + cgroups))
			check(err)
		}
		call(req, out)
	}
}

// call serves the exports "echo", "die", "files" (names of what is open), and
// "read" and "write" of a file by its path.
func call(req protocol.Request, out *json.Encoder) {
	var path string
	var result any = req.Input
	var err error
	switch req.Export {
	case "die":
		os.Exit(9)
	case "files":
		names := []string{}
		links, _ := os.ReadDir("/proc/self/fd")
		for _, l := range links {
			name, _ := os.Readlink("/proc/self/fd/" + l.Name())
			names = append(names, name)
		}
		result = names
	case "read":
		check(json.Unmarshal(req.Input, &path))
		var b []byte
		b, err = os.ReadFile(path)
		result = string(b)
	case "write":
		check(json.Unmarshal(req.Input, &path))
		err = os.WriteFile(path, []byte("x"), 0o600)
		result = nil
	}
	if err != nil {
		_ = out.Encode(protocol.Message{Type: protocol.TypeError, Error: &protocol.Error{Code: protocol.CodeFailed, Message: err.Error()}})
		return
	}
	raw, err := json.Marshal(result)
	check(err)
	_ = out.Encode(protocol.Message{Type: protocol.TypeResult, Output: raw})
}
