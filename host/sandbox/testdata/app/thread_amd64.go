package main

import "syscall"

// cloneThread makes a thread that waits for ever, and returns its id or an
// errno below zero.
func cloneThread(flags uintptr) int

func rawThread(flags uintptr) error {
	if n := cloneThread(flags); n < 0 {
		return syscall.Errno(-n)
	}
	return nil
}
