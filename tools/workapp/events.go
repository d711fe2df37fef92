package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// events is what event loops and runtimes wait with.
func events() []piece {
	return []piece{{"epoll", epolls}, {"memfd", memfds}, {"timers", timers}, {"memory", memory}, {"machine", machine}}
}

func epolls(*world) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ep)
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	defer unix.Close(ev)
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	defer unix.Close(timer)
	var set unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGUSR2 - 1)
	sig, err := unix.Signalfd(-1, &set, unix.SFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("signalfd: %w", err)
	}
	defer unix.Close(sig)
	for _, fd := range []int{ev, timer, sig} {
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
			return err
		}
	}
	if _, err := unix.Write(ev, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return err
	}
	if err := unix.TimerfdSettime(timer, 0, &unix.ItimerSpec{Value: unix.Timespec{Nsec: 1000}}, nil); err != nil {
		return err
	}
	seen := map[int32]bool{}
	for !seen[int32(ev)] || !seen[int32(timer)] {
		got := make([]unix.EpollEvent, 4)
		n, err := unix.EpollWait(ep, got, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range got[:max(n, 0)] {
			seen[e.Fd] = true
		}
	}
	_, err = unix.Poll([]unix.PollFd{{Fd: int32(ev), Events: unix.POLLIN}}, 0)
	return err
}

// memfds are memory with a descriptor: written, sealed, mapped, opened again.
func memfds(*world) error {
	fd, err := unix.MemfdCreate("work", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		return err
	}
	m, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, "in memory")
	if err := unix.Munmap(m); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	raw, err := os.ReadFile(fmt.Sprint("/proc/self/fd/", fd))
	if err != nil || string(raw[:9]) != "in memory" {
		return fmt.Errorf("opened again: %q, %w", raw, err)
	}
	return nil
}

func timers(*world) error {
	begin := time.Now()
	<-time.After(time.Millisecond)
	if time.Since(begin) < time.Millisecond {
		return mismatch("time", time.Since(begin), "a millisecond or more")
	}
	for _, clock := range []int32{unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_PROCESS_CPUTIME_ID, unix.CLOCK_THREAD_CPUTIME_ID, unix.CLOCK_REALTIME_COARSE} {
		var ts unix.Timespec
		if err := unix.ClockGettime(clock, &ts); err != nil {
			return fmt.Errorf("clock %d: %w", clock, err)
		}
	}
	old, err := unix.Setitimer(unix.ITIMER_VIRTUAL, unix.Itimerval{})
	if err != nil {
		return err
	}
	_, err = unix.Setitimer(unix.ITIMER_VIRTUAL, old)
	return err
}

func memory(*world) error {
	m, err := unix.Mmap(-1, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
	for _, advice := range []int{unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_DONTFORK, unix.MADV_DONTDUMP} {
		if err := unix.Madvise(m, advice); err != nil && !errors.Is(err, unix.EINVAL) { // not built in
			return fmt.Errorf("madvise %d: %w", advice, err)
		}
	}
	page := m[:4096]
	return errors.Join(unix.Mlock(page), unix.Munlock(page), unix.Mprotect(page, unix.PROT_NONE), unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
}

// machine asks what programs ask of the machine they run on.
func machine(*world) error {
	var u unix.Utsname
	var info unix.Sysinfo_t
	var usage unix.Rusage
	var set unix.CPUSet
	var limit unix.Rlimit
	random := make([]byte, 32)
	_, err := unix.Getrandom(random, 0)
	err = errors.Join(err, unix.Uname(&u), unix.Sysinfo(&info), unix.Getrusage(unix.RUSAGE_SELF, &usage), unix.SchedGetaffinity(0, &set),
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if err != nil {
		return err
	}
	if set.Count() < 1 || info.Totalram == 0 {
		return mismatch("processors and memory", fmt.Sprint(set.Count(), info.Totalram), "more than none")
	}
	_, err = os.Hostname()
	_, err2 := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return errors.Join(err, err2, unix.SchedSetaffinity(0, &set))
}
