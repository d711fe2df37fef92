// Command init stands for /sbin/init in tests of the native machine: it answers
// each line on the link with what it sees.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

func main() {
	link := os.NewFile(3, "link")
	in := bufio.NewScanner(link)
	out := json.NewEncoder(link)
	for in.Scan() {
		var cmd []string
		if err := json.Unmarshal(in.Bytes(), &cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		_ = out.Encode(do(cmd))
	}
}

type answer struct {
	Out   string `json:"out"`
	Errno string `json:"errno"`
}

func do(cmd []string) answer {
	s, err := try(cmd)
	a := answer{Out: s}
	var no syscall.Errno
	if errors.As(err, &no) {
		a.Errno = map[syscall.Errno]string{syscall.EPERM: "EPERM", syscall.EACCES: "EACCES", syscall.EROFS: "EROFS", syscall.ENOENT: "ENOENT", syscall.EINVAL: "EINVAL"}[no]
		if a.Errno == "" {
			a.Errno = no.Error()
		}
	} else if err != nil {
		a.Errno = err.Error()
	}
	return a
}

func try(cmd []string) (string, error) {
	switch cmd[0] {
	case "args":
		return strings.Join(os.Args, " "), nil
	case "pid":
		return fmt.Sprint(os.Getpid(), os.Getuid(), os.Getgid()), nil
	case "cat":
		raw, err := os.ReadFile(cmd[1])
		return string(raw), err
	case "ls":
		es, err := os.ReadDir(cmd[1])
		var names []string
		for _, e := range es {
			names = append(names, e.Name())
		}
		return strings.Join(names, " "), err
	case "readlink":
		return os.Readlink(cmd[1])
	case "stat":
		var st syscall.Stat_t
		err := syscall.Lstat(cmd[1], &st)
		return fmt.Sprintf("%o %d %d", st.Mode, st.Uid, st.Gid), err
	case "write":
		return "", os.WriteFile(cmd[1], []byte(cmd[2]), 0o644)
	case "writeas":
		c := exec.Command("/proc/self/exe", "child", cmd[2], cmd[3])
		var id uint32
		fmt.Sscan(cmd[1], &id)
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id, NoSetGroups: id == 0}}
		raw, err := c.CombinedOutput()
		return string(raw), err
	case "remount-rw":
		return "", syscall.Mount("", cmd[1], "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_NOSUID|syscall.MS_NODEV, "")
	case "covered": // how many folders below refuse a change
		es, err := os.ReadDir(cmd[1])
		n := 0
		for _, e := range es {
			if errors.Is(os.WriteFile(cmd[1]+"/"+e.Name()+"/f", nil, 0o644), syscall.EROFS) {
				n++
			}
		}
		return fmt.Sprint(n, " of ", len(es)), err
	case "umount":
		return "", syscall.Unmount(cmd[1], syscall.MNT_DETACH)
	case "spawn": // a process that stays
		c := exec.Command("/proc/self/exe", "sleep")
		return "", c.Start()
	case "exit":
		os.Exit(7)
	case "crash":
		panic("told to")
	case "print":
		fmt.Println(cmd[1])
		return "", nil
	}
	return "", errors.New("unknown command")
}

// Every binary of this package is also its own helper.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := os.WriteFile(os.Args[2], []byte(os.Args[3]), 0o644); err != nil {
			fmt.Print(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		select {}
	}
}
