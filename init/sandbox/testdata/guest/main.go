// Guest is PID 1 of a VM that runs the enforcer's tests on Berth's kernel: it
// makes a root that can be pivoted away from, and executes what lies in /pre.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	err := prepare()
	if err == nil {
		err = test()
	}
	fmt.Println("guest: tests ended:", err)
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// prepare moves from the initramfs, which can not be pivoted, to a tmpfs.
func prepare() error {
	const root = "/newroot"
	errs := []error{unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755,size=200m")}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "pre", "run", "etc"} {
		errs = append(errs, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	programs, err := filepath.Glob("/pre/*")
	errs = append(errs, err)
	for _, name := range programs {
		raw, err := os.ReadFile(name)
		errs = append(errs, err, os.WriteFile(root+name, raw, 0o755), os.Remove(name))
	}
	return errors.Join(append(errs,
		unix.Mount("proc", root+"/proc", "proc", 0, ""),
		unix.Mount("sysfs", root+"/sys", "sysfs", 0, ""),
		unix.Mount("dev", root+"/dev", "devtmpfs", 0, ""),
		unix.Mount("cgroup", root+"/sys/fs/cgroup", "cgroup2", 0, ""),
		unix.Chdir(root),
		unix.Mount(".", "/", "", unix.MS_MOVE, ""),
		unix.Chroot("."),
		unix.Chdir("/"),
		os.WriteFile("/proc/sys/kernel/printk", []byte("1"), 0),
		loopback(),
	)...)
}

// loopback brings lo up, which the tests' own sockets need.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func test() error {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	_, args, _ := strings.Cut(strings.TrimSpace(string(line)), " -- ")
	cmd := exec.Command("/pre/sandbox.test", strings.Fields(args)...)
	cmd.Dir = "/tmp"
	cmd.Env = []string{"BERTH_TEST_PREBUILT=/pre", "BERTH_TEST_PROFILE=vm", "PATH=/", "HOME=/tmp"}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	return cmd.Run()
}
