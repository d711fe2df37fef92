package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// terminalActions performs actions on pseudo terminals and prints what came of
// each: one word, or the errno's name.
//
//	nodes          the terminal nodes of /dev that exist
//	list           how many entries /dev/pts has
//	make           make a node of /dev/ptmx's numbers
//	many           open terminals until it is refused: how many, and why
//	talk           a child with the terminal as its controlling one reads a line and answers
//	ioctl:REQUEST  a child with a controlling terminal asks it for REQUEST, a hexadecimal number
func terminalActions(args []string, out io.Writer) int {
	for _, a := range args {
		action, operand, _ := strings.Cut(a, ":")
		answer, err := terminalAction(action, operand)
		if err != nil {
			answer = errnoName(err)
		}
		fmt.Fprintln(out, a, answer)
	}
	return 0
}

func terminalAction(action, operand string) (string, error) {
	switch action {
	case "nodes":
		var found []string
		for _, name := range []string{"tty", "ptmx", "pts", "pts/ptmx", "console", "tty0", "ttyS0", "hvc0"} {
			if _, err := os.Lstat("/dev/" + name); err == nil {
				found = append(found, name)
			}
		}
		return strings.Join(append(found, "."), ","), nil
	case "list":
		list, err := os.ReadDir("/dev/pts")
		return fmt.Sprint(len(list)), err
	case "make":
		return "ok", unix.Mknod("/scratch/ptmx", unix.S_IFCHR|0o600, int(unix.Mkdev(5, 2)))
	case "many":
		return manyTerminals(), nil
	case "talk":
		return talk()
	case "ioctl":
		return terminalRequest(operand)
	}
	return "?", nil
}

func manyTerminals() string {
	var held []*os.File
	for {
		f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			for _, f := range held {
				f.Close()
			}
			return fmt.Sprint(len(held), ",", errnoName(err))
		}
		held = append(held, f)
	}
}

// pair opens a new terminal: its two ends, without echo.
func pair() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, err
	}
	if slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	termios, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err == nil {
		termios.Lflag &^= unix.ECHO
		err = unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, termios)
	}
	return master, slave, err
}

// attached is this program with a terminal as its controlling one.
func attached(slave *os.File, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd
}

func talk() (string, error) {
	master, slave, err := pair()
	if err != nil {
		return "", err
	}
	defer master.Close()
	cmd := attached(slave, "-repeat")
	if err := cmd.Start(); err != nil {
		return "", err
	}
	slave.Close()
	if _, err := io.WriteString(master, "hello\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(master).ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.Join(strings.Fields(line), "-"), cmd.Wait()
}

// repeat reads a line from its controlling terminal, which must be what its
// standard input is, and writes it back.
func repeat(_ []string, out io.Writer) int {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	line, err := bufio.NewReader(tty).ReadString('\n')
	if err != nil {
		return 1
	}
	size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	fmt.Fprintln(tty, "heard", strings.TrimSpace(line), size != nil, err == nil)
	return 0
}

func terminalRequest(request string) (string, error) {
	master, slave, err := pair()
	if err != nil {
		return "", err
	}
	defer master.Close()
	cmd := attached(slave, "-request", request)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	slave.Close()
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		return "", syscall.Errno(code)
	}
	return "ok", err
}

// request makes one ioctl on its standard input and ends with the errno.
func request(args []string, _ io.Writer) int {
	number, err := strconv.ParseUint(args[0], 16, 64)
	if err != nil {
		return 255
	}
	typed := [8]byte{2, 'x'} // subcode for TIOCLINUX, character for TIOCSTI
	_, _, errno := syscall.Syscall(unix.SYS_IOCTL, 0, uintptr(number), uintptr(unsafe.Pointer(&typed)))
	return int(errno)
}

// errnoName returns the name of the errno that an error wraps.
func errnoName(err error) string {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err.Error()
	}
	return unix.ErrnoName(errno)
}
